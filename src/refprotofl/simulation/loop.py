"""The loop: sample, round, evaluate, record, checkpoint."""

import time
from typing import Any

import numpy as np

from refprotofl.basics.state import digest_value
from refprotofl.engines.cohort import EngineCohort
from refprotofl.engines.engine import Engine
from refprotofl.evaluation.confusion import per_class_accuracy
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.evaluation.scoring import accuracies
from refprotofl.records.checkpoint import Checkpoint, Progress
from refprotofl.records.folder import RunFolder
from refprotofl.records.machine import describe_machine
from refprotofl.records.summary import Seconds, Summary
from refprotofl.sides.server import ServerSide
from refprotofl.simulation.draws import draw_cohort, draw_evaluated
from refprotofl.simulation.watching import Event, Watcher
from refprotofl.wire import Ledger
from refprotofl.wire.ledger import Purpose


class Loop:
    def __init__(
        self, side: ServerSide, engine: Engine, checkpoint: Checkpoint, folder: RunFolder, watcher: Watcher
    ) -> None:
        self.experiment = side.experiment
        self.side = side
        self.server = side.server
        self.engine = engine
        self.checkpoint = checkpoint
        self.folder = folder
        self.watcher = watcher
        self.progress = checkpoint.progress
        self.ledger = Ledger.restore(self.progress.communication) if self.progress.communication else Ledger()

    def begin(self, workers: int, device: str, partition: dict[str, Any]) -> None:
        self.folder.mend_events(self.progress.round, self.checkpoint.events)
        self.folder.append(
            [
                {
                    "event": "resume" if self.progress.round else "start",
                    "rounds_done": self.progress.round,
                    "workers": workers,
                    "device": device,
                    "partition": partition,
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
        moved = self.engine.settle(round)
        state = self.server.state
        digest = self.checkpoint.digest(state, moved)
        event = {
            "event": "round",
            "round": round,
            "state_digest": digest,
            "asked": list(asked),
            "participants": list(cohort.clients),
            "messages": cohort.digests,
            "server": {name: digest_value(state[name])[:16] for name in sorted(state)},
            "clients": {str(client): record["digest"][:16] for client, record in moved.items()},
            "traffic": self.ledger.close(round),
            "seconds": time.perf_counter() - begin,
        }
        events.append(event)
        self.checkpoint.commit(state, moved, digest, self.progress, events)
        self.engine.committed(round)
        self.folder.append(events)
        self.watcher.committed(event, self.progress.accuracy if evaluated else None)

    def cohort(self, round: int, clients: list[int], purpose: Purpose = "training") -> EngineCohort:
        kinds, deadline = self.server.counted_as, self.experiment.deadline or None
        return EngineCohort(self.engine, self.ledger, kinds, round, clients, self.watcher.crossed, purpose, deadline)

    def evaluate(self, round: int, trained: EngineCohort) -> Event:
        """Every protocol's mean over clients, and each client's own numbers."""
        cohort = self.cohort(round, draw_evaluated(self.experiment), "evaluation")
        scores: dict[int, dict[str, float]] = {}
        taken = np.zeros((self.server.num_classes, self.server.num_classes), np.int64)
        for client, counts in self.server.scores(cohort):
            scores[client] = accuracies(counts)
            taken += counts.tensor("confusion").numpy() if "confusion" in counts else 0
        trained.failures.extend(cohort.failures)
        per_client = {
            protocol: [scores.get(client, {}).get(protocol) for client in range(self.experiment.clients)]
            for protocol in PROTOCOLS
            if any(protocol in score for score in scores.values())
        }
        means = {protocol: mean(per_client.get(protocol, [])) for protocol in PROTOCOLS}
        means["global"] = self.side.global_accuracy()
        return {
            "event": "evaluation",
            "round": round,
            "accuracy": means,
            "clients": sorted(scores),
            "trained_clients": sum("personal_before" in score for score in scores.values()),
            "per_client": per_client,
            "confusion": taken.tolist(),
            "facts": self.server.facts(),
        }

    def summary(self) -> Summary:
        seconds, taken = self.progress.seconds, self.progress.accuracy.get("confusion", [])
        return {
            "schema": 1,
            "experiment": self.experiment.plain(),
            "experiment_hash": self.experiment.hash,
            "rounds_done": self.progress.round,
            "accuracy": self.progress.accuracy["accuracy"],
            "accuracy_per_client": self.progress.accuracy["per_client"],
            "evaluated_clients": self.progress.accuracy["clients"],
            "trained_clients": self.progress.accuracy["trained_clients"],
            "confusion": taken,
            "accuracy_per_class": per_class_accuracy(np.array(taken)) if taken else [],
            "facts": self.progress.accuracy["facts"],
            "communication": self.ledger.totals(),
            "full_model": {"parameters": self.side.full_size, "participations": self.progress.participations},
            "seconds": Seconds(total=seconds["total"], train=seconds["train"], evaluate=seconds["evaluate"]),
            "state_digest": self.checkpoint.state_digest,
        }


def mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
