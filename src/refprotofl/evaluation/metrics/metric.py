"""The declaration of a metric, and the predictions that one is computed from."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refprotofl.evaluation.confusion import Confusion, confusion


@dataclass(frozen=True, eq=False)
class Labelled:
    """Predictions of one model on labelled samples; of a remote client the confusion matrix alone."""

    confusion: Confusion  # (C, C)
    labels: NDArray[np.int64] | None = None  # (N,)
    logits: NDArray[np.floating] | None = None  # (N, C)

    @classmethod
    def of(cls, logits: NDArray[np.floating], labels: NDArray[np.int64]) -> "Labelled":
        """Return the predictions of a head with these logits (N, C): the class of the largest, the first of equals."""
        return cls(confusion(logits.argmax(axis=1), labels, logits.shape[1]), labels, logits)

    @property
    def num_classes(self) -> int:
        return len(self.confusion)

    @property
    def num_samples(self) -> int:
        return int(self.confusion.sum())


@dataclass(frozen=True)
class Metric:
    name: str  # in summary.json, events and messages
    title: str  # in tables and on the report page
    order: int  # of display
    compute: Callable[[Labelled], float | None]  # called with at least one sample; None where it is undefined
    needs_logits: bool = False
    num_classes: int | None = None  # the only number of classes that it is defined for
    low: float = 0.0
    high: float = 1.0
    higher_is_better: bool = True

    def applies(self, num_classes: int) -> bool:
        return self.num_classes in (None, num_classes)

    @property
    def is_share(self) -> bool:
        """Return whether values are shown in percent."""
        return math.isclose(self.high, 1.0)
