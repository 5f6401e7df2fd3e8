"""The check before a commit: a round whose result is not finite, or moved too far, is not kept.

Clients' answers are compared before they count, phase by phase (methods/base/screening.py); the norms here are those of
answers that a method did not ask for through `Server.ask`. A state moved too far if one of its tensors moved more than
`max-step` times its usual distance and its norm.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import torch
from torch import Tensor

from refprotofl.core import ClientsFailed, GuardError, RunError, State
from refprotofl.methods import Cohort, Diverged, Server
from refprotofl.methods.base.cohort import Norms
from refprotofl.methods.base.screening import SUSPECT, Standing
from refprotofl.records import Event

RECENT = 9  # rounds that the usual move is the median of
FEWEST = 3  # values that it takes to call something usual

Moves = dict[str, list[float]]  # how far each tensor of the server's state moved in the last rounds


@dataclass(frozen=True)
class RoundCheck:
    """The reason why a round is not kept, empty if it is, and the clients whose answers are outliers in it."""

    reason: str = ""
    clients: tuple[int, ...] = ()
    moves: Moves = field(default_factory=dict)  # with those of this round


def check_divergence(before: State, after: State, moves: Moves, norms: Norms, max_step: float) -> RoundCheck:
    """Return the check of a state. `norms` are those of the answers. With max-step = 0 it need only be finite."""
    broken = next((name for name, value in after.items() if not _is_finite(value)), None)
    moved = {name: _distance(before[name], after[name]) for name in after if _is_comparable(before, after, name)}
    outliers = outliers_of(norms, max_step)
    if broken is not None:
        return RoundCheck(f"{broken} has numbers that are not finite", outliers)
    if outliers:
        return RoundCheck("answers are more than max-step times as large as is usual", outliers)
    for name, distance in moved.items() if max_step else ():
        usual = _usual(moves.get(name, []))
        if usual is not None and distance > max_step * max(usual, _norm(before[name])):
            return RoundCheck(f"{name} moved {distance:.3g}, where {usual:.3g} is usual")
    return RoundCheck(moves={name: [*moves.get(name, []), distance][-RECENT:] for name, distance in moved.items()})


def outliers_of(norms: Norms, max_step: float) -> tuple[int, ...]:
    """Return the clients whose answers are outliers."""
    found: set[int] = set()
    for by_client in norms.values() if max_step else ():
        usual = _usual(by_client.values())
        if usual is not None:
            found |= {client for client, norm in by_client.items() if not norm <= max_step * usual}
    return tuple(sorted(found))


def _usual(values: Iterable[float]) -> float | None:
    """Return the median of enough values; a 0 says nothing about how large others may be."""
    known = [value for value in values if value > 0]
    return median(known) if len(known) >= FEWEST else None


def _is_finite(value: object) -> bool:
    return not isinstance(value, Tensor) or not value.is_floating_point() or bool(torch.isfinite(value).all())


def _is_comparable(before: State, after: State, name: str) -> bool:
    old, new = before.get(name), after[name]
    if not isinstance(old, Tensor) or not isinstance(new, Tensor):
        return False
    return new.is_floating_point() and old.shape == new.shape


def _distance(before: object, after: object) -> float:
    assert isinstance(before, Tensor)
    assert isinstance(after, Tensor)
    return 0.0 if before is after else float(torch.linalg.vector_norm(after.double() - before.double()))


def _norm(value: object) -> float:
    assert isinstance(value, Tensor)
    return float(torch.linalg.vector_norm(value.double()))


Suspects = Mapping[str, Mapping[str, float]]  # by client: the round and the ratio of its last large answer


class RoundAttempt:
    """One attempt at a round: the server runs it, and it is checked before it may be kept.

    A round that fails is repeated without the client that most likely made it fail: the one whose answers are
    farthest from the usual size.
    """

    def __init__(self, server: Server, cohort: Cohort, moves: Moves, earlier: Suspects) -> None:
        """`earlier`: the suspects of the last committed rounds."""
        self.server = server
        self.cohort = cohort
        self.max_step = server.experiment.max_step
        self._moves = moves
        self._earlier = earlier

    @property
    def standings(self) -> Mapping[int, Standing]:
        return self.server.screening.standings

    def run(self) -> RoundCheck:
        """Run the round, and return whether it may be kept."""
        before = dict(self.server.state)
        try:
            self.server.round(self.cohort)
            self.server.privacy.check_round(self.server.named_aggregator, self.cohort.round)
        except Diverged as problem:  # the server's own training; that of a client is no more than its failure
            reason = f"at the server {problem}"
            return RoundCheck(reason, outliers_of(self.uncompared(), self.max_step) or self.suspects())
        except (GuardError, ClientsFailed) as problem:
            return self._failed(problem)
        check = check_divergence(before, self.server.state, self._moves, self.uncompared(), self.max_step)
        if check.reason and not check.clients:
            return replace(check, clients=self.suspects())
        return check if check.reason else self._diverged() or check

    def uncompared(self) -> Norms:
        """Return the sizes of answers that the server did not compare after decoding, when they came."""
        if not self.server.privacy.compares_answers:  # there each is shortened to a fixed norm
            return {}
        return {key: norms for key, norms in self.cohort.norms.items() if key[0] not in self.server.screening.compared}

    def suspects(self) -> tuple[int, ...]:
        """Return the client of the round whose answers are farthest from the usual size, if any is far enough."""
        least = SUSPECT * self.max_step
        far = {
            client: standing.ratio
            for client, standing in self.standings.items()
            if client in self.cohort.clients and standing.ratio > least
        }
        return (max(far, key=far.__getitem__),) if far else ()

    def _failed(self, problem: RunError) -> RoundCheck:
        """Return the check of a round that its clients could not finish; raise the error if no client is suspected."""
        suspects = self.suspects()
        if not suspects:
            earlier = self.earlier_suspects()
            raise type(problem)(f"{problem} {earlier}".rstrip()) if earlier else problem
        return RoundCheck(str(problem).rstrip("."), suspects)

    def _diverged(self) -> RoundCheck | None:
        """Return a failed check if half of the clients or more diverged: not by themselves, if another is suspected."""
        lost = [one["client"] for one in self.cohort.failures if one["code"] in ("diverged", "guard")]
        if not lost or 2 * len(lost) < len(lost) + len(self.cohort.clients):
            return None
        suspects = self.suspects()
        check = RoundCheck(f"training failed at {len(lost)} clients", suspects)
        return check if suspects or self.earlier_suspects() else None

    def dropped(self, clients: Sequence[int], reason: str) -> list[Event]:
        """Return the events of clients that the round is repeated without."""
        return [self._dropped(client, reason) for client in clients]

    def _dropped(self, client: int, why: str) -> Event:
        known = self.standings.get(client)
        ratio = f"over {self.max_step:g}" if known is None else f"{known.ratio:.3g}"
        reason = f"its answers are {ratio} times as large as is usual, and the round failed with them: {why}"[:500]
        round = self.cohort.round
        return {"event": "client-failed", "round": round, "client": client, "code": "outlier", "reason": reason}

    def named(self, clients: Sequence[int]) -> str:
        """Return a sentence for each of these clients whose answers were compared."""
        return "".join(
            f"The answers of client {client} are {self.standings[client].ratio:.3g} times as large as is usual. "
            for client in clients
            if client in self.standings
        )

    def earlier_suspects(self) -> str:
        """Return a sentence for each suspect of earlier rounds: its answers are in the shared state by now."""
        return "".join(
            f"In round {seen['round']} the answers of client {client} were {seen['ratio']:.3g} times as large as is "
            f'usual, within max-step = {self.max_step:g}; aggregate = "clipped" would have bounded them. '
            for client, seen in self._earlier.items()
        )


def remembered_suspects(server: Server, earlier: Suspects, round: int) -> dict[str, dict[str, float]]:
    """Return the suspects of the last rounds, with those of this one."""
    recent = {client: dict(one) for client, one in earlier.items() if one["round"] > round - RECENT}
    least = SUSPECT * server.experiment.max_step
    return recent | {
        str(client): {"round": round, "ratio": standing.ratio}
        for client, standing in sorted(server.screening.standings.items())
        if least and standing.ratio > least
    }
