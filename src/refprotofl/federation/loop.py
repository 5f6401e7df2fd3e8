"""The loop: choose the clients of a round, run it, evaluate, record, commit."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

from refprotofl.core import RunError, digest_value, is_reference
from refprotofl.engines import Engine, Record
from refprotofl.federation.callbacks import Callback
from refprotofl.federation.divergence import Moves, RoundAttempt, remembered_suspects
from refprotofl.federation.participation import Presence, draw_cohort, draw_evaluated, draw_lost
from refprotofl.federation.server_side import ServerSide
from refprotofl.federation.statistics import PHASE, Exchanged
from refprotofl.federation.stopping import judge, stop_event
from refprotofl.methods import Cohort, Server
from refprotofl.models import layout_of
from refprotofl.privacy import Spent
from refprotofl.records import (
    Checkpoint,
    Event,
    Origin,
    Progress,
    RunFolder,
    Summary,
    build_summary,
    describe_machine,
    sha256,
    summary_bytes,
    write_messages,
    write_traffic,
)
from refprotofl.wire import Direction, Ledger, Purpose, decode


@dataclass(frozen=True)
class Setup:
    """A run that is ready to start: its server side, and how a simulation or a deployment reaches its clients."""

    side: ServerSide
    open_engine: Callable[[Checkpoint], Engine]
    # The optimiser steps of a round: by the server, the participants, and the clients that train after the last one.
    steps: Callable[[Server, Sequence[int], Sequence[int]], int | None]
    spent: Callable[[Server, int], Spent | None] = lambda server, rounds: None  # the privacy spent in the first rounds
    workers: int = 1
    device: str = ""
    partition: Mapping[str, Any] = field(default_factory=dict)
    run_id: str = ""  # empty: a new one
    statistics: str = ""  # the source of means, deviations and vocabulary; empty where the experiment names it
    exchanged: Sequence[Exchanged] = ()  # before the first round
    wait: Callable[[], None] = lambda: None  # returns when the clients are there
    finished: Callable[[Server, Mapping[int, Record], int], None] = lambda server, records, round: None
    presence: Callable[[], Presence | None] = lambda: None  # the clients that can be asked; None: all can


class Loop:
    def __init__(
        self, setup: Setup, engine: Engine, checkpoint: Checkpoint, folder: RunFolder, callback: Callback
    ) -> None:
        self.setup = setup
        self.experiment = setup.side.experiment
        self.side = setup.side
        self.server = setup.side.server
        self.engine = engine
        self.checkpoint = checkpoint
        self.folder = folder
        self.callback = callback
        self.progress = checkpoint.progress
        self.ledger = Ledger.restore(self.progress.communication) if self.progress.communication else Ledger()
        if not self.progress.round:
            self._count_first_exchange()

    def _count_first_exchange(self) -> None:
        """Count what clients sent about their samples, and were sent, as one-off traffic of the first round."""
        ways: tuple[Direction, ...] = ("up", "down")
        for one in self.setup.exchanged:
            for way, data in zip(ways, (one.up, one.down), strict=True):
                self.ledger.record(
                    round=1,
                    phase=PHASE,
                    client=one.client,
                    direction=way,
                    message=decode(data),
                    size=len(data),
                    kinds={},
                    purpose="one_off",
                )
                self.callback.on_message(way, PHASE, one.client, 1, data, "one_off")

    def begin(self, origin: Origin, planned: int) -> None:
        """Record the start of this process. `planned`: the rounds that the run in the folder had before."""
        events = self.folder.events.repair(self.progress.round, self.checkpoint.events, self.checkpoint.events_size)
        before = self.checkpoint.marks.get("run")
        run = before["id"] if before else self._run_id(events)
        self.folder.events.record(
            {
                "event": "resume" if self.progress.round else "start",
                "run": run,
                "rounds_done": self.progress.round,
                "workers": self.setup.workers,
                "device": self.setup.device,
                "partition": dict(self.setup.partition),
                "input": self._describe_input(),
                **self._describe_layouts(),
                "machine": describe_machine(),
            }
        )
        self._record_rollback(events)
        self._record_extension(before["rounds"] if before else planned, events)
        experiment, names = self.experiment, self.experiment.backbones
        self.checkpoint.marks |= {
            "run": {"id": run, "experiment": experiment.hash, "rounds": experiment.rounds},
            "origin": origin,
            "initial": dict(zip(names, self.side.initial_digests, strict=True)),
        }
        self.callback.on_start(experiment, self.folder.path, self.setup.workers, self.progress.round)

    def _describe_input(self) -> Event:
        seen = self.experiment.known_input
        rule = self.setup.statistics or seen.normalisation or "data set"
        return {"kind": seen.kind, "shape": list(seen.shape), "dtype": seen.dtype, "statistics": rule}

    def _describe_layouts(self) -> dict[str, dict[str, str]]:
        """Return the memory layout of each backbone of the user's own."""
        known = self.side.models.by_name.items()
        layouts: dict[str, str] = {name: layout_of(model.backbone) for name, model in known if is_reference(name)}
        return {"layouts": layouts} if layouts else {}

    def _run_id(self, events: list[Event]) -> str:
        """Return the id of a run without a committed round."""
        recorded = (str(event["run"]) for event in events if "run" in event)
        return self.setup.run_id or next(recorded, uuid4().hex)

    def _record_rollback(self, events: list[Event]) -> None:
        """Record a rollback once, though a crash may come before the next commit."""
        rollback = self.checkpoint.rollback
        if rollback is not None and not any(one["event"] == "rollback" for one in events):
            self.folder.events.record({"event": "rollback", **rollback})

    def _record_extension(self, planned: int, events: list[Event]) -> None:
        """Record once that rounds were added, though a crash may come before the next commit."""
        rounds = self.experiment.rounds
        if planned < rounds and not any(one["event"] == "extend" and one.get("rounds") == rounds for one in events):
            self.folder.events.record({"event": "extend", "rounds": rounds, "rounds_before": planned})

    def run(self, started: float) -> Summary:
        """Run all rounds that are not committed yet, then write the summary."""
        spent_before = self.progress.seconds["total"]
        while self.progress.round < self.experiment.rounds and not self.progress.stopped:
            self.round(self.progress.round + 1, started, spent_before)
        self.setup.finished(self.server, self.checkpoint.records, self.progress.round)
        digest, privacy = self.checkpoint.state_digest, self.setup.spent(self.server, self.progress.round)
        summary = build_summary(self.experiment, self.progress, digest, self.side.full_size, privacy)
        sealed = sha256(summary_bytes(summary))
        self.folder.events.record({"event": "end", "state_digest": summary["state_digest"], "summary": sealed})
        self.folder.write_summary(summary)
        return summary

    def round(self, round: int, started: float, spent_before: float) -> None:
        begin = time.perf_counter()
        asked = draw_cohort(self.experiment, round, self.setup.presence())
        cohort, moves = self.train(round, asked)
        last = round == self.experiment.rounds
        closing = self.close(cohort) if last else ()
        trained = time.perf_counter()
        due = self.experiment.is_evaluated(round)
        scores = self.evaluate(cohort) if due else None
        now = time.perf_counter()
        seconds = {"total": spent_before + now - started, "train": trained - begin, "evaluate": now - trained}
        self._advance(cohort, closing, moves, scores, seconds)
        event = self._commit(cohort, asked, scores, seconds, begin)
        self.callback.on_round(event, scores)

    def _advance(
        self,
        cohort: Cohort,
        closing: Sequence[int],
        moves: Moves,
        scores: Event | None,
        seconds: Mapping[str, float],
    ) -> None:
        """Add a round to the progress of the run."""
        before = self.progress
        steps = self.setup.steps(self.server, cohort.clients, closing)
        if steps is not None:
            steps += self.server.public_steps(cohort)
        self.progress = Progress(
            round=cohort.round,
            communication=dict(self.ledger.totals()),
            accuracy=before.accuracy if scores is None else scores,
            participations=before.participations + len(cohort.clients),
            steps=None if before.steps is None or steps is None else before.steps + steps,
            stopping=before.stopping if scores is None else judge(self.experiment, before.stopping, scores),
            moves=moves,
            suspects=remembered_suspects(self.server, before.suspects, cohort.round),
            seconds={
                "total": seconds["total"],
                "train": before.seconds["train"] + seconds["train"],
                "evaluate": before.seconds["evaluate"] + seconds["evaluate"],
            },
        )

    def _commit(
        self, cohort: Cohort, asked: list[int], scores: Event | None, seconds: Mapping[str, float], begin: float
    ) -> Event:
        """Put a round on record: the clients' states first, then the server's with the manifest, then the events."""
        round, state = cohort.round, self.server.state
        moved = self.engine.settle(round)
        digest = self.checkpoint.digest(state, moved)
        event = {
            "event": "round",
            "round": round,
            "state_digest": digest,
            "asked": asked,
            "participants": list(cohort.clients),
            "messages": write_messages(cohort.digests),
            "server": {name: digest_value(state[name])[:16] for name in sorted(state)},
            "clients": {str(client): record["digest"][:16] for client, record in moved.items()},
            "traffic": write_traffic(self.ledger.close(round)),
            **self.server.observed(),
            "spent": seconds_by_work(cohort.waited, seconds["train"], seconds["evaluate"]),
            "seconds": time.perf_counter() - begin,
        }
        scored = [] if scores is None else [scores, *stop_event(self.experiment, self.progress.stopping, round)]
        lines = self.folder.events.chained([*cohort.failures, *scored, event])
        size = self.folder.events.size_with(lines)
        self.checkpoint.commit(state, self.server.observations, moved, digest, self.progress, lines, size)
        self.engine.committed(round, self.checkpoint.oldest)
        self.folder.events.append(lines)
        return event

    def train(self, round: int, asked: list[int]) -> tuple[Cohort, Moves]:
        """Run a round until it may be committed: one that fails is repeated without the client that is suspected."""
        repeated: list[Event] = []
        while True:
            gone = {event["client"] for event in repeated if event["event"] == "client-failed"}
            spares = len(asked) > self.experiment.cohort_size
            enough = self.experiment.cohort_size if spares else 0
            cohort = self.cohort(round, [client for client in asked if client not in gone], enough=enough)
            attempt = RoundAttempt(self.server, cohort, self.progress.moves, self.progress.suspects)
            check = attempt.run()
            if not check.reason:
                cohort.failures[:0] = repeated
                return cohort, check.moves
            self.undo(asked)
            self._require_repeatable(attempt, check.reason, check.clients)
            repeated.append({"event": "round-discarded", "round": round, "reason": check.reason})
            repeated += attempt.dropped(check.clients, check.reason)

    def _require_repeatable(self, attempt: RoundAttempt, reason: str, clients: Sequence[int]) -> None:
        round = attempt.cohort.round
        if not self.server.privacy.repeats_rounds:
            raise RunError(
                f"Round {round} was not committed: {reason}. {attempt.named(clients)}Under "
                "[privacy] no client is asked twice in a round, as other answers under the same noise would undo it; "
                f"a larger max-step than {self.experiment.max_step:g} accepts the round."
            )
        if not clients:
            raise RunError(
                f"Round {round} was not committed: {reason}. No client of this round is an outlier. "
                f"{attempt.earlier_suspects()}Committed rounds are kept: {self.engine.info.resume_hint}."
            )

    def close(self, trained: Cohort) -> Sequence[int]:
        """Let the server finish with all clients that ever joined, and return those that took part."""
        joined = [client for client, samples in enumerate(self.server.samples.tolist()) if samples]
        cohort = self.cohort(trained.round, joined, least=1)  # nothing is averaged any more
        self.server.close(cohort)
        trained.absorb(cohort)
        return cohort.clients

    def undo(self, clients: list[int]) -> None:
        """Return the clients and the server to the last committed round."""
        for client in clients:
            self.engine.discard(client)
        self.side = self.side.renewed()
        self.server = self.side.server
        put_back(self.server, self.checkpoint)

    def evaluate(self, trained: Cohort) -> Event:
        cohort = self.cohort(trained.round, draw_evaluated(self.experiment), "evaluation")
        event = self.side.evaluate(cohort, self.setup.spent(self.server, trained.round))
        trained.failures += cohort.failures
        return event

    def cohort(
        self, round: int, clients: list[int], purpose: Purpose = "training", least: int | None = None, enough: int = 0
    ) -> Cohort:
        kinds, deadline = self.server.counted_as, self.experiment.deadline or None
        drops = self.experiment.dropout > 0 and purpose == "training"
        lost = partial(draw_lost, self.experiment, round) if drops else None
        tap, least = self.callback.on_message, least or (self.experiment.min_replies if purpose == "training" else 1)
        code = self.experiment.value_code
        return Cohort(
            self.engine, self.ledger, kinds, round, clients, tap, purpose, deadline, lost, least, code, enough
        )


def put_back(server: Server, checkpoint: Checkpoint) -> None:
    """Return the server to the last committed round, if there is one."""
    state, observations = checkpoint.server_state(), checkpoint.observations()
    if state is not None:
        server.restore(state)
    if observations is not None:
        server.recall(observations)


def seconds_by_work(waited: dict[str, float], training: float, evaluation: float) -> dict[str, float]:
    """Return a round's seconds: waiting for the answers to each verb, the server's own work, evaluation."""
    own = max(0.0, training - sum(waited.values()))
    return {name: round(seconds, 6) for name, seconds in {**waited, "server": own, "evaluation": evaluation}.items()}
