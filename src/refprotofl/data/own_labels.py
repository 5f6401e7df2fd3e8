"""Bringing a user's labels into the one form: 0..C-1 without gaps, with names."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refprotofl.data.dataset import Labels
from refprotofl.errors import DataError


def number_labels(
    train: NDArray[np.generic], test: NDArray[np.generic], names: Sequence[str] | None, origin: str
) -> tuple[Labels, Labels, tuple[str, ...]]:
    """Train and test labels as class numbers, and the classes' names.

    Classes are numbered in the sorted order of the labels that train has; so 1, 2, 5 become 0, 1, 2
    and keep their originals as names, unless `names` (by original label) says better.
    """
    train, test = checked_labels(train, "train", origin), checked_labels(test, "test", origin)
    if (train.dtype.kind == "U") != (test.dtype.kind == "U"):
        raise DataError(
            f"{origin}: train labels are {train.dtype} and test labels {test.dtype}; use one kind for both."
        )
    known = np.unique(train)
    if len(known) < 2:
        raise DataError(f"{origin}: all train labels are {known[0]}; there must be two classes at least.")
    if len(unknown := np.setdiff1d(test, known)):
        raise DataError(f"{origin}: the test labels {_some(unknown)} do not occur in train, so nothing can learn them.")
    if names is not None and train.dtype.kind != "U":
        if int(known[-1]) >= len(names):
            raise DataError(f"{origin}: there is a label {known[-1]}, but only {len(names)} class names.")
        class_names = tuple(str(names[int(label)]) for label in known)
    else:
        class_names = tuple(str(label) for label in known)
    return np.searchsorted(known, train), np.searchsorted(known, test), class_names


def checked_labels(labels: NDArray[Any], split: str, origin: str) -> NDArray[Any]:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DataError(f"{origin}: the {split} labels have shape {labels.shape}; give one label a sample, shape (N,).")
    if not len(labels):
        raise DataError(f"{origin}: there are no {split} labels.")
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8")
    if labels.dtype.kind == "b":
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "uiU":
        raise DataError(
            f"{origin}: the {split} labels have type {labels.dtype}; use whole numbers (astype('int64')) "
            "or names (astype(str))."
        )
    if labels.dtype.kind != "U" and (labels < 0).any():
        raise DataError(f"{origin}: the {split} labels go down to {labels.min()}; numbers must not be negative.")
    return labels


def _some(values: NDArray[np.generic]) -> str:
    shown = ", ".join(str(value) for value in values[:5])
    return shown + (f" and {len(values) - 5} more" if len(values) > 5 else "")
