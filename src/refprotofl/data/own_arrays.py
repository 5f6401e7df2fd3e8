"""From a user's four arrays to a Dataset: every source of one's own ends here, with the same checks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refprotofl.data.dataset import Dataset, channel_statistics
from refprotofl.data.own_clients import CLIENT_NAMES, number_clients
from refprotofl.data.own_images import bring_to_uint8, channels_first
from refprotofl.data.own_labels import number_labels
from refprotofl.errors import DataError

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
