"""The interface of aggregators: how the clients' accepted uploads, in client order, become one server update.

An aggregator sees changes of the shared vector, never messages. What robust ones bound is what a few clients can do to
the vector, whatever they send: a coordinate is decided by the clients that sent it, so that under Eq. (7) one of them
may move it anywhere. What counts is how many clients there are, not how many samples they report.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment

Normalise = Literal["senders", "participants"]


@dataclass(frozen=True)
class Upload:
    """The change of the shared vector by one client."""

    change: Tensor  # (P,), or (sent,) at `indices`; float64
    weight: float
    indices: Tensor | None = None  # (sent,) ascending
    progress: float = 1.0  # what the change is divided by before it counts, as FedNova does


class Aggregator(ABC):
    """From uploads to the update (P,) in float64; where no client sent anything it is -0.0, which changes no value.

    A new aggregator is a module in `methods/aggregators/` that defines one subclass; its name is the module's.
    """

    holds: bool = False  # it needs the round's uploads all at once, as a median does
    needs_full_changes: bool = False  # the zeros of compressors that send few coordinates would decide
    by_samples: bool = True  # clients count by their numbers of samples; False: all alike

    def __init__(self, normalise: Normalise = "senders") -> None:
        self.normalise = normalise

    @classmethod
    def create(cls, experiment: "Experiment", normalise: Normalise) -> Self:
        """Make the aggregator from the experiment's keys; `normalise`: the divisor of a coordinate."""
        return cls(normalise)

    @abstractmethod
    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        """Return the update of a vector of `size` values."""

    def client_weights(self, samples: Tensor) -> Tensor:
        """Return the weights of clients that joined with these numbers of samples: (n,) -> (n,) in float64."""
        return (samples if self.by_samples else samples > 0).to(torch.float64)

    def divisor(self, weights: Tensor) -> float:
        """Return what the sum of the changes is divided by, from the weights (n,) of the clients that answered."""
        return float(weights.sum())

    def with_quorum(self, least: int) -> "Aggregator":
        """Return the same aggregator, except that a coordinate changes only if `least` clients sent it."""
        return self if least == 1 else Quorum(self, least)

    # Class prototypes, which are no changes

    def merge(self, prototypes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Merge each class over the clients that sent it: (clients, C, m), (clients, C) -> (C, m), defined (C,)."""
        defined = (counts > 0).any(dim=0)
        merged = torch.zeros_like(prototypes[0])
        for label in defined.nonzero().squeeze(1).tolist():
            held = counts[:, label] > 0
            merged[label] = self._centre(prototypes[held, label], counts[held, label]).to(merged.dtype)
        return merged, defined

    def merge_public(self, prototypes: Tensor) -> Tensor:
        """Merge prototypes of samples that all clients have, every client alike: (clients, C, m) -> (C, m)."""
        return self.merge(prototypes, torch.ones(prototypes.shape[:2], dtype=torch.int64))[0]

    def for_distances(self) -> "Aggregator":
        """Return the aggregator for the distances of prototypes from their median."""
        return self

    def _centre(self, vectors: Tensor, weights: Tensor) -> Tensor:
        """Aggregate vectors (n, m) as changes from their coordinate-wise median: (m,) in float64."""
        wide = vectors.to(torch.float64)
        middle, size = coordinate_median(wide), wide.shape[1]
        away = [Upload(vector - middle, float(weight)) for vector, weight in zip(wide, weights, strict=True)]
        return middle + aggregate_uploads(self.for_distances(), size, away)


def aggregate_uploads(aggregator: Aggregator, size: int, uploads: Iterable[Upload]) -> Tensor:
    """Return the update of a vector of `size` values; uploads are used as they come where the aggregator can."""
    return aggregator.aggregate(size, tuple(uploads) if aggregator.holds else uploads)


def apply_update(reference: Tensor, update: Tensor) -> Tensor:
    """Return the updated vector, rounded once."""
    return (reference.to(torch.float64) + update).to(reference.dtype)


class Quorum(Aggregator):
    """Another aggregator, except that coordinates which fewer than `least` clients sent keep their values."""

    def __init__(self, aggregator: Aggregator, least: int) -> None:
        super().__init__(aggregator.normalise)
        self.holds, self.needs_full_changes = aggregator.holds, aggregator.needs_full_changes
        self.by_samples = aggregator.by_samples
        self._aggregator = aggregator
        self._least = least

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        senders = torch.zeros(size, dtype=torch.int64)
        update = self._aggregator.aggregate(size, count_senders(senders, uploads))
        return torch.where(senders >= self._least, update, -0.0)

    def divisor(self, weights: Tensor) -> float:
        return self._aggregator.divisor(weights)

    def merge(self, prototypes: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        return self._aggregator.merge(prototypes, counts)

    def merge_public(self, prototypes: Tensor) -> Tensor:
        return self._aggregator.merge_public(prototypes)


# What several aggregators need


def count_senders(senders: Tensor, uploads: Iterable[Upload]) -> Iterator[Upload]:
    """Yield the uploads as they come, and count in `senders` (P,) how many sent each coordinate."""
    for upload in uploads:
        senders[... if upload.indices is None else upload.indices] += 1
        yield upload


def at_common_progress(uploads: Iterable[Upload]) -> list[Upload]:
    """Scale each change to the clients' median progress; one that is not finite then is left out.

    The mean progress, by which the weighted mean is scaled back, can be moved by a single client.
    """
    held = list(uploads)
    if not held:
        return []
    common = median(upload.progress for upload in held)
    even = [
        upload
        if upload.progress == common == 1
        else replace(upload, change=upload.change * (common / upload.progress), progress=1.0)
        for upload in held
    ]
    return [upload for upload in even if bool(upload.change.isfinite().all())]


def within(upload: Upload, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices, counted from `start`, and the values that an upload has between `start` and `end`."""
    change = upload.change.numpy()
    if upload.indices is None:
        return np.arange(end - start), change[start:end]
    indices = upload.indices.numpy()
    low, high = np.searchsorted(indices, (start, end))
    return indices[low:high] - start, change[low:high]


def coordinate_median(vectors: Tensor) -> Tensor:
    """Return the median of each coordinate of the finite vectors, (n, m) in float64 -> (m,)."""
    finite = vectors[vectors.isfinite().all(dim=1)].numpy()
    if not len(finite):
        return torch.full_like(vectors[0], -0.0)
    ordered = np.sort(finite, axis=0)
    return torch.from_numpy((ordered[(len(finite) - 1) // 2] + ordered[len(finite) // 2]) / 2)
