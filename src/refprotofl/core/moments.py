"""Means and deviations by feature, of parts of the data that are added up without being put together."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PART, VALUES = 4096, 1 << 22  # most samples, and most of their values, in float64 at a time
CONSTANT = 1e-20  # a variance below this, next to the square of the mean, is rounding


@dataclass(frozen=True, eq=False)
class Moments:
    """The sums of a part, by feature (F,): values that are not missing, their mean, squared deviations from it."""

    counts: NDArray[np.int64]
    means: NDArray[np.float64]
    squares: NDArray[np.float64]

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return means and standard deviations; a constant feature has deviation 1, which keeps it finite."""
        variances = self.squares / np.maximum(self.counts, 1)
        varied = variances > CONSTANT * self.means**2
        return tuple(self.means.tolist()), tuple(np.where(varied, np.sqrt(variances), 1.0).tolist())


def moments(inputs: NDArray[np.floating]) -> Moments:
    """Return the sums of samples (N, F) or (N, F, steps); NaN is a missing value."""
    features, size = inputs.shape[1], math.prod(inputs.shape[1:])
    rows = max(1, min(PART, VALUES // max(1, size)))
    parts = (inputs[start : start + rows] for start in range(0, len(inputs), rows))
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


def as_moments(summary: Mapping[str, Any]) -> Moments:
    return Moments(summary["counts"], summary["means"], summary["squares"])


def read_moments(summary: Mapping[str, Any], features: int, most: int) -> None:
    """Raise ValueError for sums that no part has with at most `most` values of a feature."""
    for name, kind in (("counts", "i"), ("means", "f"), ("squares", "f")):
        value = summary.get(name)
        if not isinstance(value, np.ndarray) or value.dtype.kind != kind or value.shape != (features,):
            raise ValueError(f"{name} is not a number for each of {features} features")
        if not np.isfinite(value).all() or (name != "means" and (value < 0).any()):
            raise ValueError(f"{name} has a number that is not finite or below 0")
    if (summary["counts"] > most).any():
        raise ValueError(f"counts has {summary['counts'].max():,}, more than any client has values, {most:,}")


FEWEST = 3  # parts that can be compared with their median


def far_off(parts: Sequence[Moments], limit: float) -> list[int]:
    """Return the positions of parts with a feature that strays more than `limit` times as far as the parts' median.

    A part strays by the root of the mean squared distance of its values to the median of all parts' means. Features
    that are constant for most parts cannot be compared.
    """
    if len(parts) < FEWEST or not limit:
        return []
    middle = np.median([part.means for part in parts], axis=0)
    spreads = np.array(
        [np.sqrt(part.squares / np.maximum(part.counts, 1) + (part.means - middle) ** 2) for part in parts]
    )  # (parts, F)
    typical = np.median(spreads, axis=0)
    strays = (spreads > limit * typical) & (typical > 0)
    return np.flatnonzero(strays.any(axis=1)).tolist()
