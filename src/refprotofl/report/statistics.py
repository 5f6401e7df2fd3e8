"""Means over seeds with their uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the half-width of its 95 % confidence interval; one seed has no interval."""

    mean: float
    half_width: float | None
    count: int


def estimate(values: Sequence[float]) -> Estimate:
    """By Student's t distribution: seeds are few, and their spread is itself an estimate."""
    from scipy.stats import t

    count = len(values)
    if count < 2:
        return Estimate(fmean(values), None, count)
    return Estimate(fmean(values), float(t.ppf(0.975, count - 1)) * stdev(values) / math.sqrt(count), count)
