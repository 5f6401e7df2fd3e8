"""A user's own arrays brought into one form: uint8 images with channels first, class numbers with names, clients.

Every source of a user's own data ends here, with the same checks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError
from refprotofl.data.dataset import Dataset, Images, Labels, Owners, channel_statistics

RULE = (
    "Images are (N, height, width), (N, height, width, channels) or (N, channels, height, width), with 1 or 3 channels"
)
EIGHT_BITS = (
    "Images are stored in 8 bits: scale them to whole numbers 0..255, by their range (4095, 65535, …), "
    "which only you know"
)
PART = 4096  # images that are converted at a time


def bring_to_uint8(
    train: NDArray[np.generic], test: NDArray[np.generic], origin: str
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], tuple[str, ...]]:
    """Return both splits as uint8, scaled alike, and a note if precision is lost.

    Whole numbers, also of a float type, are taken as 0..255. Other floats must be in 0..1; precision beyond 8 bits is
    rounded off and noted.
    """
    _check_types(train, test, origin)
    low = min(float(train.min()), float(test.min()))
    high = max(float(train.max()), float(test.max()))
    if not (low >= 0 and high <= 255):  # so written, NaN is refused too
        undo = "Undo any normalisation before saving: it is done here" if train.dtype.kind == "f" else EIGHT_BITS
        raise DataError(
            f"{origin}: pixel values run from {low:g} to {high:g}; they must be in 0..255, "
            f"or as floats in 0..1. {undo}."
        )
    unit_floats = train.dtype.kind == "f" and high <= 1
    black_and_white = train.dtype.kind == test.dtype.kind == "b"
    scale = 255.0 if unit_floats or black_and_white else 1.0
    (train_pixels, exact), (test_pixels, test_exact) = _scaled(train, scale), _scaled(test, scale)
    if exact and test_exact:
        return train_pixels, test_pixels, ()
    if not unit_floats:
        raise DataError(
            f"{origin}: pixel values are fractions and run from {low:g} to {high:g}. Floats must be in 0..1, or be "
            "whole numbers in 0..255."
        )
    note = f"{origin}: images have more precision than the 8 bits that they are stored in; they were rounded to 1/255."
    return train_pixels, test_pixels, (note,)


def _check_types(train: NDArray[np.generic], test: NDArray[np.generic], origin: str) -> None:
    for split, array in (("train", train), ("test", test)):
        if array.dtype.kind not in "uifb":
            raise DataError(f"{origin}: the {split} images have type {array.dtype}; use uint8, or float in 0..1.")
        if array.size == 0:
            raise DataError(f"{origin}: there are no {split} images (shape {array.shape}).")
    if (train.dtype.kind == "f") != (test.dtype.kind == "f"):
        raise DataError(
            f"{origin}: train images are {train.dtype} and test images {test.dtype}; use one type for both."
        )


def _scaled(array: NDArray[np.generic], scale: float) -> tuple[NDArray[np.uint8], bool]:
    """Return the array as uint8, and True if nothing was lost but the float type's own rounding."""
    if array.dtype.kind != "f" and scale == 1:
        return array.astype(np.uint8, copy=False), True
    pixels = np.empty(array.shape, np.uint8)
    own_rounding = 255 * float(np.finfo(np.dtype(array.dtype.str)).eps) if array.dtype.kind == "f" else 0.0
    exact = True
    for start in range(0, len(array), PART):
        values = array[start : start + PART].astype(np.float64) * scale
        whole = np.rint(values)
        exact = exact and bool(np.abs(values - whole).max() <= max(1e-3, own_rounding))
        pixels[start : start + PART] = whole
    return pixels, exact


def channels_first(images: NDArray[np.uint8], split: str, origin: str) -> Images:
    """Return images (N, channels, height, width); where both layouts are possible, channels come first."""
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    elif images.ndim != 4 or images.shape[1] not in (1, 3):
        raise DataError(f"{origin}: the {split} images have shape {images.shape}. {RULE}.")
    return np.ascontiguousarray(images)


def number_labels(
    train: NDArray[np.generic], test: NDArray[np.generic], names: Sequence[str] | None, origin: str
) -> tuple[Labels, Labels, tuple[str, ...]]:
    """Return train and test labels as class numbers 0..C-1, and the names of the classes.

    Classes are numbered in the sorted order of the train labels: 1, 2, 5 become 0, 1, 2. Their names are the original
    labels, or those in `names`, by original label.
    """
    train, test = checked_labels(train, "train", origin), checked_labels(test, "test", origin)
    if (train.dtype.kind == "U") != (test.dtype.kind == "U"):
        raise DataError(
            f"{origin}: train labels are {train.dtype} and test labels {test.dtype}; use one kind for both."
        )
    known = np.unique(train)
    if len(known) < 2:
        raise DataError(f"{origin}: all train labels are {known[0]}; at least two classes are needed.")
    if len(unknown := np.setdiff1d(test, known)):
        raise DataError(f"{origin}: the test labels {_some(unknown)} do not occur in train, so they cannot be learned.")
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
        raise DataError(
            f"{origin}: the {split} labels have shape {labels.shape}; give one label per sample, shape (N,)."
        )
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
        raise DataError(f"{origin}: the smallest {split} label is {labels.min()}; labels must not be negative.")
    return labels


def _some(values: NDArray[np.generic]) -> str:
    shown = ", ".join(str(value) for value in values[:5])
    return shown + (f" and {len(values) - 5} more" if len(values) > 5 else "")


SPLIT_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def dataset_from_arrays(arrays: Mapping[str, Any], origin: str, class_names: Sequence[str] | None = None) -> Dataset:
    """Make a data set of a user's arrays.

    `origin` names the source in errors; `class_names` are by label, where the source has them.
    """
    if missing := [name for name in SPLIT_ARRAYS if name not in arrays]:
        raise DataError(f"{origin} lacks {', '.join(missing)}; it must hold {', '.join(SPLIT_ARRAYS)}.")
    parts = {name: _array(arrays[name], name, origin) for name in SPLIT_ARRAYS}
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
    owners = {name: _array(arrays[name], name, origin) for name in CLIENT_ARRAYS if arrays.get(name) is not None}
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


CLIENT_ARRAYS = ("client", "client_test")  # one entry per training or test sample


def number_clients(
    given: Mapping[str, NDArray[Any]], train_size: int, test_size: int, origin: str
) -> tuple[tuple[str, ...], Owners | None, Owners | None]:
    """Return the clients' names, the owner of each training sample, and of each test sample if `client_test` is given.

    Clients are numbered in the order of their names, by value if all are whole numbers.
    """
    if "client" not in given:
        if "client_test" in given:
            raise DataError(f"{origin} has client_test but no client: add the clients of the training samples.")
        return (), None, None
    train, positions = _names(given["client"], "client", train_size, origin)
    names = _in_order(train)
    numbers = {name: number for number, name in enumerate(names)}
    owners, test_owners = np.array([numbers[name] for name in train], np.int64)[positions], None
    if "client_test" in given:
        test, positions = _names(given["client_test"], "client_test", test_size, origin)
        if unknown := sorted(set(test) - numbers.keys()):
            raise DataError(f"{origin}: the test client {unknown[0]!r} has no training samples.")
        test_owners = np.array([numbers[name] for name in test], np.int64)[positions]
    return tuple(names), owners, test_owners


def _names(values: NDArray[Any], array: str, samples: int, origin: str) -> tuple[list[str], NDArray[np.int64]]:
    """Return the clients that occur, and the position of each sample's (N,) client among them."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    if values.dtype.kind not in "uiU":
        raise DataError(f"{origin}: {array} has type {values.dtype}; use names (astype(str)) or whole numbers.")
    if values.shape != (samples,):
        raise DataError(f"{origin}: {array} has shape {values.shape}; give one client per sample, shape ({samples},).")
    found, positions = np.unique(values, return_inverse=True)
    names = [str(name) for name in found.tolist()]
    if not all(name.strip() for name in names):
        raise DataError(f"{origin}: {array} contains an empty name.")
    return names, positions


def _in_order(names: list[str]) -> list[str]:
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)
