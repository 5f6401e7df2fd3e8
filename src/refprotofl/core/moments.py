"""Means and deviations by feature, of parts of the data that are added up without being put together."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PART = 4096  # samples in float64 at a time
CONSTANT = 1e-12  # a variance below this, next to the square of the mean, is rounding


@dataclass(frozen=True, eq=False)
class Moments:
    """The sums of a part, by feature (F,): values that are not missing, their mean, squared deviations from it."""

    counts: NDArray[np.int64]
    means: NDArray[np.float64]
    squares: NDArray[np.float64]

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return means and standard deviations; a constant feature has deviation 1, which keeps it finite."""
        variances = self.squares / np.maximum(self.counts, 1)
        varied = variances > CONSTANT * np.maximum(self.means**2, 1)
        return tuple(self.means.tolist()), tuple(np.where(varied, np.sqrt(variances), 1.0).tolist())


def moments(inputs: NDArray[np.floating]) -> Moments:
    """Return the sums of samples (N, F) or (N, F, steps); NaN is a missing value."""
    features = inputs.shape[1]
    parts = (inputs[start : start + PART] for start in range(0, len(inputs), PART))
    return pooled((_of_part(part) for part in parts), features)


def _of_part(part: NDArray[np.floating]) -> Moments:
    values = np.moveaxis(part.astype(np.float64), 1, 0).reshape(part.shape[1], -1)  # (F, values)
    there = ~np.isnan(values)
    counts = there.sum(axis=1)
    means = np.where(there, values, 0).sum(axis=1) / np.maximum(counts, 1)
    squares = np.where(there, values - means[:, None], 0) ** 2
    return Moments(counts, means, squares.sum(axis=1))


def pooled(parts: Iterable[Moments], features: int) -> Moments:
    """Return the sums over all parts, added in their order (Chan, Golub and LeVeque 1979)."""
    counts, means, squares = np.zeros(features, np.int64), np.zeros(features), np.zeros(features)
    for part in parts:
        total = counts + part.counts
        share = part.counts / np.maximum(total, 1)
        shift = part.means - means
        means = means + shift * share
        squares = squares + part.squares + shift**2 * counts * share
        counts = total
    return Moments(counts, means, squares)
