"""The mean of changes that are shortened to a norm."""

from collections.abc import Iterable
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Self

from torch import Tensor

from refprotofl.methods.aggregators.mean import Mean
from refprotofl.methods.base.aggregation import Aggregator, Normalise, Upload, at_common_progress

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Clipped(Aggregator):
    """Each client's whole change shortened to the norm `clip`, then the weighted mean of Eq. (7).

    With a clip of 0 the norm is the median of the round's, which fewer than half cannot set. Nobody moves the vector
    further than that; how far depends on the numbers of samples, and on who else sent a coordinate.
    """

    holds = True

    def __init__(self, clip: float = 0.0, normalise: Normalise = "senders") -> None:
        super().__init__(normalise)
        self._clip = clip
        self._mean = Mean(normalise)

    @classmethod
    def create(cls, experiment: "Experiment", normalise: Normalise) -> Self:
        return cls(experiment.clip, normalise)

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        even = at_common_progress(uploads)
        norms = [float(upload.change.norm()) for upload in even]
        most = self._clip or (median(norms) if norms else 0.0)
        short = (
            replace(upload, change=upload.change * (most / norm)) if norm > most else upload
            for upload, norm in zip(even, norms, strict=True)
        )
        return self._mean.aggregate(size, short)

    def for_distances(self) -> "Clipped":
        """Return one that limits distances to their median: `clip` is about changes."""
        return Clipped()
