"""The trimmed mean of each coordinate (Yin et al. 2018)."""

from typing import TYPE_CHECKING, Self

import numpy as np

from refprotofl.methods.aggregators.median import Median
from refprotofl.methods.base.aggregation import Normalise

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Trimmed(Median):
    """The mean of each coordinate without the `trim` share of its senders at each end, unweighted.

    It bears as many hostile senders as are cut off at one end. At least one is where three or more sent it: under
    masks the coordinates of few are those attacked.
    """

    def __init__(self, trim: float, normalise: Normalise = "senders") -> None:
        super().__init__(normalise)
        self._trim = trim

    @classmethod
    def create(cls, experiment: "Experiment", normalise: Normalise) -> Self:
        return cls(experiment.trim, normalise)

    def middle(self, ordered: np.ndarray, counts: np.ndarray) -> np.ndarray:
        cut = np.where(counts >= 3, np.maximum(1, (self._trim * counts).astype(np.int64)), 0)  # at each end
        rank = np.arange(ordered.shape[1])
        kept = (rank >= cut[:, None]) & (rank < (counts - cut)[:, None])
        mean: np.ndarray = np.where(kept, ordered, 0.0).sum(axis=1) / (counts - 2 * cut)
        return mean
