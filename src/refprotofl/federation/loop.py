"""The loop: sample, round, evaluate, record, checkpoint."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from refprotofl.core.errors import ClientsFailed, GuardError, RunError
from refprotofl.core.state import digest_value
from refprotofl.engines.engine import Engine
from refprotofl.federation.callbacks import Callback, Event
from refprotofl.federation.divergence import RECENT, Moves, RoundCheck, check_divergence, outliers_of
from refprotofl.federation.evaluation import evaluate
from refprotofl.federation.sampling import draw_cohort, draw_evaluated, draw_lost
from refprotofl.federation.server_side import ServerSide
from refprotofl.methods.base.cohort import Cohort, Norms
from refprotofl.methods.base.screening import SUSPECT, Standing
from refprotofl.methods.base.server import Server
from refprotofl.methods.base.training import Diverged
from refprotofl.privacy.accounting import Spent
from refprotofl.records.checkpoint import Checkpoint, Progress
from refprotofl.records.files import sha256
from refprotofl.records.folder import RunFolder
from refprotofl.records.machine import describe_machine
from refprotofl.records.manifest import Origin
from refprotofl.records.rounds import write_messages, write_traffic
from refprotofl.records.summary import Summary, build_summary, summary_bytes
from refprotofl.wire import Ledger
from refprotofl.wire.ledger import Purpose


class Loop:
    def __init__(
        self,
        side: ServerSide,
        engine: Engine,
        checkpoint: Checkpoint,
        folder: RunFolder,
        callback: Callback,
        steps: Callable[[Sequence[int], Sequence[int]], int | None],
        privacy: Callable[[int], Spent | None] = lambda rounds: None,
    ) -> None:
        """`steps` tells those of the optimisers of a round's participants and of whom it closed with, if it is known.

        `privacy` tells what so many rounds have cost of it.
        """
        self.experiment = side.experiment
        self.side = side
        self.server = side.server
        self.engine = engine
        self.checkpoint = checkpoint
        self.folder = folder
        self.callback = callback
        self.steps = steps
        self.privacy = privacy
        self.progress = checkpoint.progress
        self.ledger = Ledger.restore(self.progress.communication) if self.progress.communication else Ledger()

    def begin(self, origin: Origin, planned: int, workers: int, device: str, partition: dict[str, Any]) -> None:
        """`planned` is the number of rounds that the run in the folder had before."""
        told = self.folder.events.repair(self.progress.round, self.checkpoint.events, self.checkpoint.events_size)
        before = self.checkpoint.marks.get("run")
        run = before["id"] if before else next((str(event["run"]) for event in told if "run" in event), uuid4().hex)
        self.folder.events.record(
            {
                "event": "resume" if self.progress.round else "start",
                "run": run,
                "rounds_done": self.progress.round,
                "workers": workers,
                "device": device,
                "partition": partition,
                "machine": describe_machine(),
            }
        )
        self._tell_rollback(told)
        self._tell_extension(before["rounds"] if before else planned, told)
        experiment, names = self.experiment, self.experiment.backbones
        self.checkpoint.marks |= {
            "run": {"id": run, "experiment": experiment.hash, "rounds": experiment.rounds},
            "origin": origin,
            "initial": dict(zip(names, self.side.initial_digests, strict=True)),
        }
        self.callback.on_start(experiment, self.folder.path, workers, self.progress.round)

    def _tell_rollback(self, told: list[Event]) -> None:
        """Once, though a crash may come before the next commit."""
        rollback = self.checkpoint.rollback
        if rollback is not None and not any(one["event"] == "rollback" for one in told):
            self.folder.events.record({"event": "rollback", **rollback})

    def _tell_extension(self, planned: int, told: list[Event]) -> None:
        """Once, though a crash may come between the telling and the next commit."""
        rounds = self.experiment.rounds
        if planned < rounds and not any(one["event"] == "extend" and one.get("rounds") == rounds for one in told):
            self.folder.events.record({"event": "extend", "rounds": rounds, "rounds_before": planned})

    def run(self, started: float) -> Summary:
        """All rounds that are not committed yet, then the summary."""
        spent_before = self.progress.seconds["total"]
        for round in range(self.progress.round + 1, self.experiment.rounds + 1):
            self.round(round, started, spent_before)
        digest, privacy = self.checkpoint.state_digest, self.privacy(self.progress.round)
        summary = build_summary(self.experiment, self.progress, digest, self.side.full_size, privacy)
        sealed = sha256(summary_bytes(summary))
        self.folder.events.record({"event": "end", "state_digest": summary["state_digest"], "summary": sealed})
        self.folder.write_summary(summary)
        return summary

    def round(self, round: int, started: float, spent_before: float) -> None:
        begin = time.perf_counter()
        asked = sorted(draw_cohort(self.experiment, round))
        cohort, moves = self.train(round, asked)
        last = round == self.experiment.rounds
        closing = self.close(cohort) if last else ()
        trained = time.perf_counter()
        evaluated = round % self.experiment.evaluate.every == 0 or last
        scored = [self.evaluate(cohort)] if evaluated else []
        events = [*cohort.failures, *scored]
        seconds, steps = self.progress.seconds, self.progress.steps
        more = self.steps(cohort.clients, closing)
        self.progress = Progress(
            round=round,
            communication=dict(self.ledger.totals()),
            accuracy=scored[0] if scored else self.progress.accuracy,
            participations=self.progress.participations + len(cohort.clients),
            steps=None if steps is None or more is None else steps + more,
            moves=moves,
            suspects=self._remembered_suspects(round),
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
            "asked": asked,
            "participants": list(cohort.clients),
            "messages": write_messages(cohort.digests),
            "server": {name: digest_value(state[name])[:16] for name in sorted(state)},
            "clients": {str(client): record["digest"][:16] for client, record in moved.items()},
            "traffic": write_traffic(self.ledger.close(round)),
            **self.server.observed(),
            "spent": seconds_by_work(
                cohort.waited, trained - begin, self.progress.seconds["evaluate"] - seconds["evaluate"]
            ),
            "seconds": time.perf_counter() - begin,
        }
        lines = self.folder.events.chained([*events, event])
        told = self.folder.events.size_with(lines)
        self.checkpoint.commit(state, self.server.observations, moved, digest, self.progress, lines, told)
        self.engine.committed(round, self.checkpoint.oldest)
        self.folder.events.append(lines)
        self.callback.on_round(event, self.progress.accuracy if evaluated else None)

    def train(self, round: int, asked: list[int]) -> tuple[Cohort, Moves]:
        """Run a round until it may be committed: one that fails is repeated without the client that stands out."""
        out: list[Event] = []
        while True:
            gone = {event["client"] for event in out if event["event"] == "client-failed"}
            cohort = self.cohort(round, [client for client in asked if client not in gone])
            told = self.judged(cohort)
            if not told.reason:
                cohort.failures[:0] = out
                return cohort, told.moves
            standings = self.server.screening.standings
            self.undo(asked)
            if not self.server.privacy.repeats_rounds:
                raise RunError(
                    f"Round {round} was not committed: {told.reason}. {self._names(told.clients, standings)}Under "
                    "[privacy] nobody is asked twice in a round, as other answers under the same noise would undo it; "
                    f"a larger max-step than {self.experiment.max_step:g} lets the round be."
                )
            if not told.clients:
                raise RunError(
                    f"Round {round} was not committed: {told.reason}. No client of this round stands out. "
                    f"{self._earlier_suspects()}Rounds committed so far are kept: {self.engine.info.resume_hint}."
                )
            out.append({"event": "round-discarded", "round": round, "reason": told.reason})
            out += [self._stood_out(round, client, told.reason, standings) for client in told.clients]

    def judged(self, cohort: Cohort) -> RoundCheck:
        """Run the round, and decide whether it may be kept. A round that fails names the client it fails by."""
        before, most = dict(self.server.state), self.experiment.max_step
        try:
            self.server.round(cohort)
            self.server.privacy.check_round(self.server.named_aggregator, cohort.round)
        except Diverged as problem:  # the server's own training; that of a client is no more than its failure
            reason = f"at the server {problem}"
            return RoundCheck(reason, outliers_of(self.uncompared(cohort), most) or self.suspects(cohort))
        except (GuardError, ClientsFailed) as problem:
            return self._failed(cohort, problem)
        verdict = check_divergence(before, self.server.state, self.progress.moves, self.uncompared(cohort), most)
        if verdict.reason and not verdict.clients:
            return replace(verdict, clients=self.suspects(cohort))
        return verdict if verdict.reason else self._diverged(cohort) or verdict

    def uncompared(self, cohort: Cohort) -> Norms:
        """The sizes of answers that the server did not compare itself, after decoding, when they came."""
        if not self.server.privacy.compares_answers:  # where each is shortened to a fixed norm
            return {}
        return {key: norms for key, norms in cohort.norms.items() if key[0] not in self.server.screening.compared}

    def suspects(self, cohort: Cohort) -> tuple[int, ...]:
        """The client of the round whose answers are farthest from the usual size, if any is far enough."""
        least = SUSPECT * self.experiment.max_step
        far = {
            client: standing.ratio
            for client, standing in self.server.screening.standings.items()
            if client in cohort.clients and standing.ratio > least
        }
        return (max(far, key=far.__getitem__),) if far else ()

    def _failed(self, cohort: Cohort, problem: RunError) -> RoundCheck:
        """A round that its clients could not finish is repeated without the client that stands out, if there is one."""
        suspects = self.suspects(cohort)
        if not suspects:
            earlier = self._earlier_suspects()
            raise type(problem)(f"{problem} {earlier}".rstrip()) if earlier else problem
        return RoundCheck(str(problem).rstrip("."), suspects)

    def _diverged(self, cohort: Cohort) -> RoundCheck | None:
        """Half of the clients or more do not diverge by themselves where one of the others stands out."""
        lost = [one["client"] for one in cohort.failures if one["code"] in ("diverged", "guard")]
        if not lost or 2 * len(lost) < len(lost) + len(cohort.clients):
            return None
        reason = f"training failed at {len(lost)} clients"
        suspects = self.suspects(cohort)
        return RoundCheck(reason, suspects) if suspects or self._earlier_suspects() else None

    def _names(self, clients: Sequence[int], standings: Mapping[int, Standing]) -> str:
        return "".join(
            f"The answers of client {client} are {standings[client].ratio:.3g} times as large as is usual. "
            for client in clients
            if client in standings
        )

    def _earlier_suspects(self) -> str:
        """Who stood out in the last committed rounds, within max-step: what it sent is in the shared state by now."""
        return "".join(
            f"In round {seen['round']} the answers of client {client} were {seen['ratio']:.3g} times as large as is "
            f'usual, within max-step = {self.experiment.max_step:g}; aggregate = "clipped" would have bounded them. '
            for client, seen in self.progress.suspects.items()
        )

    def _remembered_suspects(self, round: int) -> dict[str, dict[str, float]]:
        recent = {client: one for client, one in self.progress.suspects.items() if one["round"] > round - RECENT}
        least = SUSPECT * self.experiment.max_step
        return recent | {
            str(client): {"round": round, "ratio": standing.ratio}
            for client, standing in sorted(self.server.screening.standings.items())
            if least and standing.ratio > least
        }

    def close(self, trained: Cohort) -> Sequence[int]:
        """What the server has for everyone who ever joined, when the last round is over; gives who took it."""
        joined = [client for client, samples in enumerate(self.server.samples.tolist()) if samples]
        cohort = self.cohort(trained.round, joined, least=1)  # nothing is averaged any more
        self.server.close(cohort)
        trained.absorb(cohort)
        return cohort.clients

    def _stood_out(self, round: int, client: int, why: str, standings: Mapping[int, Standing]) -> Event:
        ratio = f"{standings[client].ratio:.3g}" if client in standings else f"over {self.experiment.max_step:g}"
        reason = f"its answers are {ratio} times as large as is usual, and the round failed with them: {why}"[:500]
        return {"event": "client-failed", "round": round, "client": client, "code": "outlier", "reason": reason}

    def undo(self, clients: list[int]) -> None:
        """Everybody is as after the last committed round."""
        for client in clients:
            self.engine.discard(client)
        self.side = self.side.renewed()
        self.server = self.side.server
        put_back(self.server, self.checkpoint)

    def evaluate(self, trained: Cohort) -> Event:
        cohort = self.cohort(trained.round, draw_evaluated(self.experiment), "evaluation")
        event = evaluate(self.side, cohort, self.privacy(trained.round))
        trained.failures += cohort.failures
        return event

    def cohort(self, round: int, clients: list[int], purpose: Purpose = "training", least: int | None = None) -> Cohort:
        kinds, deadline = self.server.counted_as, self.experiment.deadline or None
        drops = self.experiment.dropout > 0 and purpose == "training"
        lost = partial(draw_lost, self.experiment, round) if drops else None
        tap, least = self.callback.on_message, least or (self.experiment.min_replies if purpose == "training" else 1)
        code = self.experiment.value_code
        return Cohort(self.engine, self.ledger, kinds, round, clients, tap, purpose, deadline, lost, least, code)


def put_back(server: Server, checkpoint: Checkpoint) -> None:
    """The server is as after the last committed round, if there is one."""
    state, observations = checkpoint.server_state(), checkpoint.observations()
    if state is not None:
        server.restore(state)
    if observations is not None:
        server.recall(observations)


def seconds_by_work(waited: dict[str, float], training: float, evaluation: float) -> dict[str, float]:
    """Where a round's seconds went: waiting for the answers to each verb, the server's own work, evaluation."""
    own = max(0.0, training - sum(waited.values()))
    return {name: round(seconds, 6) for name, seconds in {**waited, "server": own, "evaluation": evaluation}.items()}
