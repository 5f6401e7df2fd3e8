"""Statistics over seeds and clients: intervals, paired differences, corrected p-values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, pstdev, stdev
from typing import Literal

LEVEL = 0.95  # of every interval

Standing = Literal["best", "within noise", "behind"]
Verdict = Literal["better", "not worse by more than the margin", "worse", "undecided"]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the half-width of its 95 % confidence interval; one seed has no interval."""

    mean: float
    half_width: float | None
    count: int


@dataclass(frozen=True)
class Paired:
    """The mean difference over the seeds that two have in common; one seed has neither interval nor p-value."""

    mean: float
    half_width: float | None
    p: float | None
    count: int

    @property
    def within_noise(self) -> bool | None:
        """True if the interval contains 0; None without an interval."""
        return None if self.half_width is None else abs(self.mean) <= self.half_width

    @property
    def opposite(self) -> "Paired":
        """The difference with the two exchanged."""
        return replace(self, mean=0.0 - self.mean)  # never -0.0


@dataclass(frozen=True)
class Spread:
    """The spread of accuracy over the clients of one run."""

    worst: float
    deviation: float  # standard deviation of these clients, not an estimate for others


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the mean by Student's t distribution."""
    count = len(values)
    if count < 2:
        return Estimate(fmean(values), None, count)
    return Estimate(fmean(values), _critical(count) * stdev(values) / math.sqrt(count), count)


def paired(values: Mapping[int, float], baseline: Mapping[int, float]) -> Paired | None:
    """Estimate the mean difference by Student's t; None if no seed is in both."""
    common = sorted(values.keys() & baseline.keys())
    if not common:
        return None
    found = estimate([values[seed] - baseline[seed] for seed in common])
    return Paired(found.mean, found.half_width, _p_value(found), found.count)


def verdict(difference: Paired, margin: float) -> Verdict:
    """Compare a difference with the non-inferiority margin by its 95 % interval; the first verdict that holds.

    An interval between -margin and 0 is "not worse by more than the margin", although its upper end is below 0.
    """
    if difference.half_width is None:
        return "undecided"
    lower, upper = difference.mean - difference.half_width, difference.mean + difference.half_width
    if lower > 0:
        return "better"
    if lower > -margin:
        return "not worse by more than the margin"
    return "worse" if upper < 0 else "undecided"


def _p_value(found: Estimate) -> float | None:
    """Return the two-sided p-value of a zero mean, from the interval, so that the two agree."""
    from scipy.stats import t

    if found.half_width is None:
        return None
    if found.half_width == 0:
        return 1.0 if found.mean == 0 else 0.0
    statistic = abs(found.mean) / found.half_width * _critical(found.count)
    return float(2 * t.sf(statistic, found.count - 1))


def _critical(count: int) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, count - 1))


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values for their number, step by step from the smallest (Holm 1979); None stays None."""
    known = sorted((p, place) for place, p in enumerate(ps) if p is not None)
    adjusted: list[float | None] = [None] * len(ps)
    reached = 0.0
    for rank, (p, place) in enumerate(known):
        reached = max(reached, min(1.0, p * (len(known) - rank)))
        adjusted[place] = reached
    return adjusted


def standings(rivals: Sequence[Mapping[int, float]]) -> list[Standing]:
    """Mark the highest mean as best, and rivals within noise of it by the paired interval; all others are behind.

    Only a rival with the largest number of seeds can be the best: means over fewer seeds are not comparable.
    """
    most = max(map(len, rivals), default=0)
    means = [fmean(values.values()) if values and len(values) == most else -math.inf for values in rivals]
    best = max(range(len(rivals)), key=means.__getitem__, default=0)
    return [
        "best" if place == best and values else _standing(values, rivals[best]) for place, values in enumerate(rivals)
    ]


def _standing(values: Mapping[int, float], best: Mapping[int, float]) -> Standing:
    difference = paired(values, best)
    return "within noise" if difference is not None and difference.within_noise else "behind"


def spread(clients: Sequence[float | None]) -> Spread | None:
    """Return the spread over the clients of one run; clients that were not evaluated are None and left out."""
    known = [value for value in clients if value is not None]
    return Spread(min(known), pstdev(known)) if known else None
