"""The check before a commit: a server's state that is not finite, or moved too far, is not kept.

Clients' answers are compared before they count, phase by phase (methods/base/screening.py); the norms here are those of
answers that a method did not ask for through `Server.ask`. A state moved too far if one of its tensors moved `max-step`
times as far as it usually does, and as it is large.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

from refprotofl.core.state import State
from refprotofl.methods.base.cohort import Norms

RECENT = 9  # rounds that the usual move is the median of
FEWEST = 3  # values that it takes to call something usual

Moves = dict[str, list[float]]  # how far each tensor of the server's state moved in the last rounds


@dataclass(frozen=True)
class RoundCheck:
    """What is wrong with a round, if anything, and whose answers stand out in it."""

    reason: str = ""
    clients: tuple[int, ...] = ()
    moves: Moves = field(default_factory=dict)  # with those of this round


def check_divergence(before: State, after: State, moves: Moves, norms: Norms, max_step: float) -> RoundCheck:
    """`norms` are those of the clients' answers. With max-step = 0 a state need only be finite."""
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
    """The clients whose answers stand out."""
    found: set[int] = set()
    for by_client in norms.values() if max_step else ():
        usual = _usual(by_client.values())
        if usual is not None:
            found |= {client for client, norm in by_client.items() if not norm <= max_step * usual}
    return tuple(sorted(found))


def _usual(values: Iterable[float]) -> float | None:
    """The median, where there are enough; what is 0 says nothing of how large others may be."""
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
