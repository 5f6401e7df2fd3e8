"""Bringing a user's labels into the one form: 0..C-1 without gaps, with names.

From a user's four arrays to a Dataset: every source of one's own ends here, with the same checks.

Whose sample each is, where a user's own data tell: clients by number, with their names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refprotofl.core.errors import DataError
from refprotofl.data.dataset import Dataset, Labels, Owners, channel_statistics
from refprotofl.data.user_images import bring_to_uint8, channels_first


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


NAMES = ("x_train", "y_train", "x_test", "y_test")


def dataset_from_arrays(arrays: Mapping[str, Any], origin: str, class_names: Sequence[str] | None = None) -> Dataset:
    """`origin` names the source in errors; `class_names` are by label, where the source has them."""
    if missing := [name for name in NAMES if name not in arrays]:
        raise DataError(f"{origin} lacks {', '.join(missing)}; it must hold {', '.join(NAMES)}.")
    parts = {name: _array(arrays[name], name, origin) for name in NAMES}
    train, test, notes = bring_to_uint8(parts["x_train"], parts["x_test"], origin)
    train_images, test_images = channels_first(train, "train", origin), channels_first(test, "test", origin)
    if train_images.shape[1:] != test_images.shape[1:]:
        raise DataError(
            f"{origin}: train images are {_size(train_images)} but test images {_size(test_images)}; "
            "bring them to one size."
        )
    train_labels, test_labels, names = number_labels(parts["y_train"], parts["y_test"], class_names, origin)
    for split, images, labels in (("train", train_images, train_labels), ("test", test_images, test_labels)):
        if len(images) != len(labels):
            raise DataError(f"{origin}: there are {len(images):,} {split} images but {len(labels):,} labels.")
    mean, std = channel_statistics(train_images)
    owners = {name: _array(arrays[name], name, origin) for name in CLIENT_NAMES if arrays.get(name) is not None}
    clients = number_clients(owners, len(train_labels), len(test_labels), origin)
    return Dataset(train_images, train_labels, test_images, test_labels, names, mean, std, *clients, notes=notes)


def _array(value: Any, name: str, origin: str) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of unequal lengths
        raise DataError(f"{origin}: {name} is not a regular array: {error}.") from None
    if array.dtype.kind == "O":
        raise DataError(
            f"{origin}: {name} holds Python objects. Use one numeric array of equal-sized images, "
            "and for labels whole numbers or astype(str)."
        )
    return array


def _size(images: np.ndarray) -> str:
    channels, height, width = images.shape[1:]
    return f"{width} x {height} with {channels} channel{'s' if channels > 1 else ''}"


CLIENT_NAMES = ("client", "client_test")  # arrays, one entry a training or test sample


def number_clients(
    given: Mapping[str, NDArray[Any]], train_size: int, test_size: int, origin: str
) -> tuple[tuple[str, ...], Owners | None, Owners | None]:
    """The clients' names, the owner of every training sample, and of every test sample if `client_test` is given.

    Clients are numbered in the order of their names, by value if all are whole numbers.
    """
    if "client" not in given:
        if "client_test" in given:
            raise DataError(f"{origin} has client_test but no client: give the clients of the training samples too.")
        return (), None, None
    train, places = _names(given["client"], "client", train_size, origin)
    names = _in_order(train)
    numbers = {name: number for number, name in enumerate(names)}
    owners, test_owners = np.array([numbers[name] for name in train], np.int64)[places], None
    if "client_test" in given:
        test, places = _names(given["client_test"], "client_test", test_size, origin)
        if unknown := sorted(set(test) - numbers.keys()):
            raise DataError(f"{origin}: the test client {unknown[0]!r} has no training samples.")
        test_owners = np.array([numbers[name] for name in test], np.int64)[places]
    return tuple(names), owners, test_owners


def _names(values: NDArray[Any], array: str, samples: int, origin: str) -> tuple[list[str], NDArray[np.int64]]:
    """The clients that occur, and which of them each sample (N,) is of."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    if values.dtype.kind not in "uiU":
        raise DataError(f"{origin}: {array} has type {values.dtype}; use names (astype(str)) or whole numbers.")
    if values.shape != (samples,):
        raise DataError(f"{origin}: {array} has shape {values.shape}; give one client a sample, shape ({samples},).")
    found, places = np.unique(values, return_inverse=True)
    names = [str(name) for name in found.tolist()]
    if not all(name.strip() for name in names):
        raise DataError(f"{origin}: {array} has an empty name in it.")
    return names, places


def _in_order(names: list[str]) -> list[str]:
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)
