"""Confusion matrices: pure functions over predicted classes and labels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Confusion = NDArray[np.int64]  # (C, C): samples by label (row) and predicted class (column)


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
