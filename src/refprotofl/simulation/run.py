"""The loop: sample, round, evaluate, record, checkpoint."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import torch

from refprotofl.basics.state import digest_value
from refprotofl.basics.streams import stream
from refprotofl.compute import devices
from refprotofl.compute.process import keep_freed_memory, one_compute_thread
from refprotofl.engines.cohort import EngineCohort
from refprotofl.engines.host import Engine
from refprotofl.engines.inprocess import InProcessEngine
from refprotofl.engines.whereabouts import Whereabouts
from refprotofl.engines.workers import WorkerEngine
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.evaluation.scoring import accuracies, accuracy
from refprotofl.experiment import Experiment
from refprotofl.methods.core.server import Server
from refprotofl.models import ALL
from refprotofl.records.checkpoint import Checkpoint, Progress
from refprotofl.records.folder import RunFolder
from refprotofl.records.machine import describe_machine
from refprotofl.records.summary import Seconds, Summary
from refprotofl.simulation import assembly
from refprotofl.wire import Ledger

Workers = int | Literal["auto"]
Event = dict[str, Any]


class Watcher:
    """Told of what happens in a run. The base is told and says nothing."""

    def started(self, experiment: Experiment, folder: Path, workers: int, rounds_done: int) -> None: ...

    def crossed(self, direction: str, phase: str, client: int, round: int, data: bytes) -> None:
        """A message crossed between server and client."""

    def committed(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        """A round is on disk; `accuracy` if it was evaluated."""


@dataclass(frozen=True)
class Finished:
    """A finished run: its summary as in summary.json, and where it lies."""

    summary: Summary
    folder: Path


def run(
    experiment: Experiment,
    *,
    out: Path | str | None = None,
    data: Path | str | None = None,
    workers: Workers = 1,
    resume: bool = False,
    watcher: Watcher | None = None,
) -> Finished:
    """Runs an experiment, or goes on with one, and gives its summary.

    The result does not depend on `workers`. Without `out` a new folder under runs/ is made.
    """
    started = time.perf_counter()
    watcher = watcher or Watcher()
    data_dir = None if data is None else Path(data)
    folder = RunFolder(Path(out) if out is not None else default_folder(experiment))
    keep_freed_memory()
    with ExitStack() as cleanup, one_compute_thread():
        device = devices.choose(experiment.device)
        cleanup.callback(devices.make_repeatable(device))
        federation = assembly.load_federation(experiment, data_dir, device)
        server = assembly.build_server(federation)
        folder.open(federation.experiment, resume)
        cleanup.callback(folder.close)
        finished = folder.read_summary()
        if finished is not None:
            return Finished(finished, folder.path)
        initial = assembly.initial_digests(federation.experiment, federation.initial)
        checkpoint = Checkpoint(folder.checkpoint, initial)
        committed = checkpoint.server_state()
        if committed is not None:
            server.restore(committed)
        count = worker_count(workers, federation.experiment, device)
        engine = open_engine(federation, checkpoint, data_dir, count)
        cleanup.callback(engine.close)
        loop = Loop(federation, server, engine, checkpoint, folder, watcher)
        loop.begin(count)
        return Finished(loop.run(started), folder.path)


def default_folder(experiment: Experiment) -> Path:
    name = Path(experiment.dataset).stem.replace(":", "-")
    method = experiment.method.replace(":", "-")
    return Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{method}-{name}-seed{experiment.seed}"


def worker_count(workers: Workers, experiment: Experiment, device: torch.device) -> int:
    return min(devices.places(device) if workers == "auto" else workers, experiment.clients)


def open_engine(federation: assembly.Federation, checkpoint: Checkpoint, data_dir: Path | None, workers: int) -> Engine:
    here = assembly.build_host(federation, checkpoint.folder)
    if workers == 1:
        return InProcessEngine(here)
    specifications = [
        assembly.worker_specification(federation.experiment, data_dir, checkpoint.folder, device)
        for device in devices.dealt(federation.device, workers)
    ]
    sizes = [len(indices) for indices in federation.data.client_indices]
    return WorkerEngine(assembly.build_worker_host, specifications, sizes, meanwhile=here)


class Loop:
    def __init__(
        self,
        federation: assembly.Federation,
        server: Server,
        engine: Engine,
        checkpoint: Checkpoint,
        folder: RunFolder,
        watcher: Watcher,
    ) -> None:
        self.experiment = federation.experiment
        self.federation = federation
        self.server = server
        self.engine = engine
        self.checkpoint = checkpoint
        self.folder = folder
        self.watcher = watcher
        self.progress = checkpoint.progress
        self.whereabouts = Whereabouts(checkpoint.records)
        self.ledger = Ledger.restore(self.progress.communication) if self.progress.communication else Ledger()

    def begin(self, workers: int) -> None:
        self.folder.mend_events(self.progress.round, self.checkpoint.events)
        self.folder.append(
            [
                {
                    "event": "resume" if self.progress.round else "start",
                    "rounds_done": self.progress.round,
                    "workers": workers,
                    "device": devices.describe(self.federation.device, workers),
                    "partition": vars(self.federation.data.partition_notes),
                    "machine": describe_machine(),
                }
            ]
        )
        self.watcher.started(self.experiment, self.folder.path, workers, self.progress.round)

    def run(self, started: float) -> Summary:
        """All rounds that are not committed yet, then the summary."""
        spent_before = self.progress.seconds["total"]
        for round in range(self.progress.round + 1, self.experiment.rounds + 1):
            self.round(round, started, spent_before)
        summary = self.summary()
        self.folder.append([{"event": "end", "state_digest": summary["state_digest"]}])
        self.folder.write_summary(summary)
        return summary

    def round(self, round: int, started: float, spent_before: float) -> None:
        begin = time.perf_counter()
        cohort = self.cohort(round, draw_cohort(self.experiment, round))
        asked = cohort.clients
        self.server.round(cohort)
        trained = time.perf_counter()
        evaluated = round % self.experiment.evaluate.every == 0 or round == self.experiment.rounds
        scored = [self.evaluate(round, cohort)] if evaluated else []
        events = [*cohort.failures, *scored]
        seconds = self.progress.seconds
        self.progress = Progress(
            round=round,
            communication=dict(self.ledger.totals()),
            accuracy=scored[0] if scored else self.progress.accuracy,
            participations=self.progress.participations + len(cohort.clients),
            seconds={
                "total": spent_before + time.perf_counter() - started,
                "train": seconds["train"] + trained - begin,
                "evaluate": seconds["evaluate"] + time.perf_counter() - trained,
            },
        )
        written = self.whereabouts.settle(self.engine, round)
        state = self.server.state
        digest = self.checkpoint.digest(state, written)
        event = {
            "event": "round",
            "round": round,
            "state_digest": digest,
            "asked": list(asked),
            "participants": list(cohort.clients),
            "messages": cohort.digests,
            "server": {name: digest_value(state[name])[:16] for name in sorted(state)},
            "clients": {str(client): record["digest"][:16] for client, record in written.items()},
            "traffic": self.ledger.close(round),
            "seconds": time.perf_counter() - begin,
        }
        events.append(event)
        self.checkpoint.commit(state, written, digest, self.progress, events)
        self.folder.append(events)
        self.watcher.committed(event, self.progress.accuracy if evaluated else None)

    def cohort(self, round: int, clients: list[int], evaluation: bool = False) -> EngineCohort:
        return EngineCohort(
            self.engine,
            self.whereabouts,
            self.ledger,
            self.server.counted_as,
            round,
            clients,
            self.watcher.crossed,
            "evaluation" if evaluation else "training",
        )

    def evaluate(self, round: int, trained: EngineCohort) -> Event:
        """Every protocol's mean over clients, and each client's own numbers."""
        clients = draw_evaluated(self.experiment)
        cohort = self.cohort(round, clients, evaluation=True)
        scores = {client: accuracies(counts) for client, counts in cohort.ask("evaluate", self.server.evaluation())}
        trained.failures.extend(cohort.failures)
        per_client = {
            protocol: [scores.get(client, {}).get(protocol) for client in range(self.experiment.clients)]
            for protocol in PROTOCOLS
            if any(protocol in score for score in scores.values())
        }
        means = {protocol: mean(per_client.get(protocol, [])) for protocol in PROTOCOLS}
        if (model := self.server.global_model()) is not None:
            images, labels = self.federation.test_images, torch.from_numpy(self.federation.data.test_labels)
            means["global"] = accuracy(model, images, labels, self.experiment.known_input.num_classes)
        return {
            "event": "evaluation",
            "round": round,
            "accuracy": means,
            "clients": sorted(scores),
            "trained_clients": sum("personal_before" in score for score in scores.values()),
            "per_client": per_client,
            "facts": self.server.facts(),
        }

    def summary(self) -> Summary:
        sizes = {name: sum(model.sizes(ALL)) for name, model in self.federation.models.items()}
        parameters = round(sum(sizes[name] for name in self.experiment.backbones) / self.experiment.clients)
        seconds = self.progress.seconds
        return {
            "schema": 1,
            "experiment": self.experiment.plain(),
            "experiment_hash": self.experiment.hash,
            "rounds_done": self.progress.round,
            "accuracy": self.progress.accuracy["accuracy"],
            "accuracy_per_client": self.progress.accuracy["per_client"],
            "evaluated_clients": self.progress.accuracy["clients"],
            "trained_clients": self.progress.accuracy["trained_clients"],
            "facts": self.progress.accuracy["facts"],
            "communication": self.ledger.totals(),
            "full_model": {"parameters": parameters, "participations": self.progress.participations},
            "seconds": Seconds(total=seconds["total"], train=seconds["train"], evaluate=seconds["evaluate"]),
            "state_digest": self.checkpoint.state_digest,
        }


def draw_cohort(experiment: Experiment, round: int) -> list[int]:
    """The clients of a round: drawn from the seed and the round alone, so every method sees the same."""
    chosen = stream(experiment.seed, "cohort", round=round).choice(
        experiment.clients, experiment.cohort_size, replace=False
    )
    return sorted(chosen.tolist())


def draw_evaluated(experiment: Experiment) -> list[int]:
    """The clients whose models are scored: the same throughout a run."""
    if experiment.evaluate.clients == "all":
        return list(range(experiment.clients))
    chosen = stream(experiment.seed, "evaluated").choice(experiment.clients, experiment.evaluate.clients, replace=False)
    return sorted(chosen.tolist())


def mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
