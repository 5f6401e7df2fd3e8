"""One fold a round: the clients' accepted uploads, in client order, become the move of the shared vector.

A rule is all that has to be written for another way to aggregate. It sees changes, never messages.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

Normalise = Literal["senders", "participants"]


@dataclass(frozen=True)
class Upload:
    """How far one client moved the shared vector."""

    change: Tensor  # (P,), or (sent,) at `places`; float64
    weight: float
    places: Tensor | None = None  # (sent,) ascending
    progress: float = 1.0  # what the change is divided by before it counts, as FedNova does


class Aggregator(Protocol):
    """From uploads to the move (P,) in float64; where nobody sent anything it is -0.0, which changes no value."""

    @property
    def holds(self) -> bool:
        """Whether it must have the round's uploads all at once, as a median must."""

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor: ...


def aggregate_uploads(aggregator: Aggregator, size: int, uploads: Iterable[Upload]) -> Tensor:
    """The move of a vector of `size`: uploads are taken in as they come, or held if the rule must have them all."""
    return aggregator.aggregate(size, _held(uploads) if aggregator.holds else uploads)


def _held(uploads: Iterable[Upload]) -> Sequence[Upload]:
    return tuple(uploads)


def apply_update(reference: Tensor, move: Tensor) -> Tensor:
    """The vector after the move, rounded once."""
    return (reference.to(torch.float64) + move).to(reference.dtype)


class Mean:
    """The weighted mean, summed up as the uploads come; memory for the vector alone.

    Of a coordinate that not all sent: over its `senders`, or over all `participants`, so that what few send moves
    little. Where changes are divided by the clients' progress, the mean is scaled back by the mean progress.
    """

    holds: ClassVar[bool] = False

    def __init__(self, normalise: Normalise = "senders") -> None:
        self._normalise = normalise

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        summed, senders = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
        total = effective = everywhere = 0.0  # sums of w_k, of w_k * progress_k, of w_k of those who sent all
        for upload in uploads:
            change = upload.weight / upload.progress * upload.change
            if upload.places is None:
                summed += change
                everywhere += upload.weight
            else:
                summed.index_add_(0, upload.places, change)
                senders.index_add_(0, upload.places, torch.full_like(change, upload.weight))
            total += upload.weight
            effective += upload.weight * upload.progress
        if not total:
            return torch.full_like(summed, -0.0)
        if everywhere == total:
            return effective / total * summed / total
        senders += everywhere
        weights = senders if self._normalise == "senders" else torch.full_like(senders, total)
        mean = effective / total * summed / weights.clamp(min=torch.finfo(torch.float64).tiny)
        return torch.where(senders > 0, mean, -0.0)
