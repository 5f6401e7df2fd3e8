"""Metrics of predictions by name, and the confusion matrix that most of them follow from.

To add a metric, write its function under `@metric(…)`: messages, events, summaries, tables, the page and trackers carry
every metric that is declared here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Confusion = NDArray[np.int64]  # (C, C): samples by label (row) and predicted class (column)

LARGEST_LOSS = 1e9  # the loss of a model that has diverged means nothing


def confusion(predicted: ArrayLike, labels: ArrayLike, num_classes: int) -> Confusion:
    """Return the confusion matrix; those of several clients or batches can be added."""
    rows, columns = np.asarray(labels, np.int64), np.asarray(predicted, np.int64)
    if rows.shape != columns.shape or rows.ndim != 1:
        raise ValueError(f"{columns.shape} predictions do not fit {rows.shape} labels")
    for numbers in (rows, columns):
        if len(numbers) and not (numbers.min() >= 0 and numbers.max() < num_classes):
            raise ValueError(f"there are classes outside 0 to {num_classes - 1}")
    counts = np.bincount(rows * num_classes + columns, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes)


def per_class_accuracy(counts: Confusion) -> list[float | None]:
    """Return the share of correct predictions for each class; None for a class without samples."""
    totals: Sequence[int] = counts.sum(axis=1).tolist()
    correct: Sequence[int] = counts.diagonal().tolist()
    return [right / total if total else None for right, total in zip(correct, totals, strict=True)]


def most_confused(counts: Confusion, label: int) -> int | None:
    """Return the wrong class most often predicted for samples of `label`, the first of equals."""
    wrong = counts[label].copy()
    wrong[label] = 0
    return int(wrong.argmax()) if wrong.any() else None


@dataclass(frozen=True, eq=False)
class ScoredSamples:
    """Predictions of one model on labelled samples; of a remote client the confusion matrix alone."""

    confusion: Confusion  # (C, C)
    labels: NDArray[np.int64] | None = None  # (N,)
    logits: NDArray[np.floating] | None = None  # (N, C)

    @classmethod
    def of(cls, logits: NDArray[np.floating], labels: NDArray[np.int64]) -> "ScoredSamples":
        """Return the predictions of a head with these logits (N, C): the class of the largest, the first of equals."""
        return cls(confusion(logits.argmax(axis=1), labels, logits.shape[1]), labels, logits)

    @property
    def num_classes(self) -> int:
        return len(self.confusion)

    @property
    def num_samples(self) -> int:
        return int(self.confusion.sum())


Compute = Callable[[ScoredSamples], float | None]


@dataclass(frozen=True)
class Metric:
    """A declared metric."""

    name: str  # in summary.json, events and messages
    title: str  # in tables and on the report page
    compute: Compute  # called with at least one sample; None where it is undefined
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

    def show(self, value: float, half_width: float | None = None) -> str:
        """Return a value as text, with its confidence interval if there is one: `98.76 % ± 0.12`, `0.123 ± 0.0456`."""
        scale, form, unit = (100, ".2f", " %") if self.is_share else (1, ".3g", "")
        interval = "" if half_width is None else f" ± {scale * half_width:{form}}"
        return f"{scale * value:{form}}{unit}{interval}"


METRICS: dict[str, Metric] = {}  # in the order in which they are shown and recorded


def metric(
    title: str,
    *,
    needs_logits: bool = False,
    num_classes: int | None = None,
    low: float = 0.0,
    high: float = 1.0,
    higher_is_better: bool = True,
) -> Callable[[Compute], Compute]:
    """Declare a function as the metric of its name. A value outside `low` to `high` counts as undefined."""

    def declare(compute: Compute) -> Compute:
        name = compute.__name__
        METRICS[name] = Metric(name, title, compute, needs_logits, num_classes, low, high, higher_is_better)
        return compute

    return declare


@metric("accuracy")
def accuracy(samples: ScoredSamples) -> float:
    """Return the share of samples that are classified correctly."""
    return int(samples.confusion.trace()) / samples.num_samples


@metric("balanced accuracy")
def balanced_accuracy(samples: ScoredSamples) -> float:
    """Return the mean of the recall over the classes that have samples."""
    recalls = [recall for recall in per_class_accuracy(samples.confusion) if recall is not None]
    return sum(recalls) / len(recalls)


@metric("macro-F1")
def macro_f1(samples: ScoredSamples) -> float:
    """Return the mean of F1 = 2 TP / (2 TP + FP + FN) over the classes that have samples or are predicted."""
    counts = samples.confusion
    occurrences = counts.sum(axis=0) + counts.sum(axis=1)  # (C,): 2 TP + FP + FN
    seen = occurrences > 0
    return float((2 * counts.diagonal()[seen] / occurrences[seen]).mean())


@metric("AUROC", needs_logits=True, num_classes=2)
def auroc(samples: ScoredSamples) -> float | None:
    """Return the probability that a sample of class 1 has a higher score than one of class 0.

    This is the Mann-Whitney statistic U / (positives * negatives); None where a class has no samples.
    """
    labels, logits = samples.labels, samples.logits
    if labels is None or logits is None or not np.isfinite(logits).all():
        return None
    positive = labels == 1
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return None
    scores = logits[:, 1].astype(np.float64) - logits[:, 0]  # increases with the probability of class 1
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (sizes.cumsum() - (sizes - 1) / 2)[group]  # from 1; equal scores share their mean rank
    return float((ranks[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


@metric("cross-entropy", needs_logits=True, high=LARGEST_LOSS, higher_is_better=False)
def loss(samples: ScoredSamples) -> float | None:
    """Return the mean cross-entropy over samples, in double precision; NaN where logits are not finite."""
    import torch  # already imported where logits are computed; other commands need not wait for it

    if samples.labels is None or samples.logits is None:
        return None
    logits, labels = torch.as_tensor(samples.logits).double(), torch.as_tensor(samples.labels)
    return float(torch.nn.functional.cross_entropy(logits, labels))


def compute(name: str, samples: ScoredSamples) -> float | None:
    """Return one metric; None where it is undefined, as without samples."""
    declared = METRICS[name]
    applies = samples.num_samples and declared.applies(samples.num_classes)
    value = declared.compute(samples) if applies else None
    return value if value is not None and declared.low <= value <= declared.high else None


def compute_all(samples: ScoredSamples) -> dict[str, float]:
    """Return every metric that these predictions define."""
    found = {name: compute(name, samples) for name in METRICS}
    return {name: value for name, value in found.items() if value is not None}


def sent_by_clients(num_classes: int) -> list[Metric]:
    """Return the metrics that the server cannot derive from a confusion matrix, so that clients send their values."""
    return [metric for metric in METRICS.values() if metric.needs_logits and metric.applies(num_classes)]
