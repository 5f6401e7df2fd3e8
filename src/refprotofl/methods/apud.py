"""Adaptive Probabilistic Update Dropping: which adapter parameters are sent, and how they are averaged."""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from refprotofl.experiment.keys import number_of
from refprotofl.methods.aggregators.mean import Mean
from refprotofl.methods.base.aggregation import Normalise, Upload, aggregate_uploads, apply_update

Selection = Literal["top", "random", "probabilistic"]


def number_to_send(keep: float, size: int) -> int:
    return number_of(keep, size)


def select(local: Tensor, reference: Tensor, keep: int) -> Tensor:
    """Return the mask (d,) of the `keep` coordinates that moved most, Eqs. (3)-(5); ties: the lower index first."""
    movement = (local - reference).abs().numpy()  # (d,), Eq. (3)
    return _mask(movement.size, _largest(movement, keep))


def select_random(size: int, keep: int, generator: np.random.Generator) -> Tensor:
    return _mask(size, generator.choice(size, keep, replace=False))


def select_probabilistic(local: Tensor, reference: Tensor, keep: int, generator: np.random.Generator) -> Tensor:
    """Return a mask of exactly `keep` coordinates, each with probability min(1, s * movement).

    s is such that the probabilities add up to `keep`. Systematic sampling over a random order has a fixed size and
    meets the inclusion probabilities exactly.
    """
    movement = (local - reference).abs().to(torch.float64).numpy()
    moving = int(np.count_nonzero(movement))
    if moving <= keep:
        return _mask(movement.size, _largest(movement, keep))
    order = generator.permutation(movement.size)
    reach = np.cumsum(inclusion_probabilities(movement, keep)[order])
    reach *= keep / reach[-1]
    ticks = np.arange(keep) + generator.random()
    return _mask(movement.size, order[np.searchsorted(reach, ticks, side="right").clip(max=movement.size - 1)])


def inclusion_probabilities(movement: np.ndarray, keep: int) -> np.ndarray:
    """Return min(1, s * moved), s solved so that the sum is `keep`; more than `keep` entries must be non-zero."""
    descending = np.sort(movement)[::-1]
    rest = np.cumsum(descending[::-1])[::-1]  # rest[i]: sum from the i-th largest on
    certain = 0  # how many are kept for sure: as long as the next one's probability would exceed 1
    while certain < keep and (keep - certain) * descending[certain] > rest[certain]:
        certain += 1
    probabilities: np.ndarray = np.minimum(1.0, movement * ((keep - certain) / rest[certain]))
    return probabilities


def split_by_tensor(keep: int, sizes: Sequence[int]) -> list[int]:
    """Return `keep` divided among tensors in proportion to their sizes, by largest remainder."""
    shares = [keep * size / sum(sizes) for size in sizes]
    counts = [int(share) for share in shares]
    by_remainder = sorted(range(len(sizes)), key=lambda i: (counts[i] - shares[i], i))
    for i in by_remainder[: keep - sum(counts)]:
        counts[i] += 1
    return counts


def aggregate(
    reference: Tensor, uploads: Iterable[tuple[Tensor, Tensor, float]], normalise: Normalise = "senders"
) -> Tensor:
    """Return each coordinate's average over the clients that sent it, Eq. (7); one that no client sent keeps its value.

    `uploads` are (values (d,), mask (d,), weight). With `participants` the weights are those of all participants,
    so that a coordinate sent by few moves little.
    """
    listed = (upload(reference, mask.nonzero().squeeze(1), values[mask], weight) for values, mask, weight in uploads)
    return apply_update(reference, aggregate_uploads(Mean(normalise), len(reference), listed))


def upload(reference: Tensor, indices: Tensor, values: Tensor, weight: float) -> Upload:
    """Return a client's upload of the values (sent,) at some indices (sent,) of the adapter (d,)."""
    change = values.to(torch.float64) - reference.index_select(0, indices).to(torch.float64)
    return Upload(change, weight, indices)


def _largest(movement: np.ndarray, keep: int) -> np.ndarray:
    threshold = np.partition(movement, movement.size - keep)[movement.size - keep]  # the keep-th largest
    above = np.flatnonzero(movement > threshold)
    equal = np.flatnonzero(movement == threshold)
    return np.concatenate([above, equal[: keep - above.size]])


def _mask(size: int, chosen: np.ndarray) -> Tensor:
    mask = torch.zeros(size, dtype=torch.bool)
    mask[torch.from_numpy(chosen)] = True
    return mask
