"""Data sets of the Hugging Face hub: `hf:owner/name@revision`, through the optional package `datasets`."""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from refprotofl.core import DataError, InputError, stream
from refprotofl.data.arrays import dataset_from_arrays
from refprotofl.data.dataset import Dataset
from refprotofl.data.draws import stratified_split
from refprotofl.data.image_files import in_8_bits, pixel_limit
from refprotofl.data.reading import AS_IT_IS, Sizing


def load_huggingface(name: str, seed: int, sizing: Sizing = AS_IT_IS) -> Dataset:
    """Load a data set of the hub; `name` is owner/name, with @ and a commit, tag or branch, else the newest.

    Without a test or validation split, a fifth of train is held out by the seed.
    """
    repository, revision = split_revision(name)
    if not repository:
        raise InputError("dataset = 'hf:' names no data set; write hf:owner/name or hf:owner/name@revision.")
    try:
        hub = importlib.import_module("datasets")
    except ModuleNotFoundError:
        raise InputError(
            f"dataset = 'hf:{name}' needs the package datasets: install it with pip install 'refprotofl[hf]'."
        ) from None
    from PIL.Image import DecompressionBombError

    try:
        splits = hub.load_dataset(repository, revision=revision)
    except Exception as error:  # the hub raises many kinds: no network, no such name, a broken script
        raise DataError(f"hf:{name} could not be loaded ({type(error).__name__}: {error}).") from None
    try:
        with pixel_limit():
            return dataset_from_splits(splits, f"hf:{name}", seed, sizing)
    except DecompressionBombError as error:
        raise DataError(f"hf:{name} has an image that is too large ({error}): use another revision or set.") from None


def split_revision(name: str) -> tuple[str, str | None]:
    repository, _, revision = name.partition("@")
    return repository, revision or None


def dataset_from_splits(splits: Any, origin: str, seed: int, sizing: Sizing = AS_IT_IS) -> Dataset:
    """Make a data set of a mapping of split names to tables with `features` and columns."""
    if "train" not in splits:
        raise DataError(f"{origin} has no split called train, only {', '.join(splits)}.")
    train = splits["train"]
    image_column = _column(train.features, "Image", ("image", "img"), origin)
    label_column = _column(train.features, "ClassLabel", ("label", "labels", "fine_label"), origin)
    x_train, y_train = _pictures(train[image_column], origin, sizing), np.asarray(train[label_column])
    test_split = next((name for name in ("test", "validation", "valid") if name in splits), None)
    if test_split is not None:
        test = splits[test_split]
        x_test, y_test = _pictures(test[image_column], origin, sizing), np.asarray(test[label_column])
    else:
        classes, numbers = np.unique(y_train, return_inverse=True)
        kept, held = stratified_split(numbers, len(classes), 0.2, stream(seed, "huggingface/split"))
        x_train, y_train, x_test, y_test = x_train[kept], y_train[kept], x_train[held], y_train[held]
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    return dataset_from_arrays(arrays, origin, getattr(train.features[label_column], "names", None))


def _column(features: Mapping[str, Any], kind: str, usual: tuple[str, ...], origin: str) -> str:
    """Return the column of this feature kind: the one with the usual name, or the only one."""
    fitting = [name for name, feature in features.items() if type(feature).__name__ == kind]
    named = [name for name in usual if name in (fitting or features)]
    if named:
        return named[0]
    if len(fitting) == 1:
        return fitting[0]
    raise DataError(
        f"{origin}: no single {'image' if kind == 'Image' else 'label'} column among {', '.join(features)}; "
        f"it should be called {' or '.join(usual)}."
    )


def _pictures(column: Any, origin: str, sizing: Sizing) -> np.ndarray:
    """Return images (N, height, width) if all are grey, else (N, height, width, 3)."""
    name = f"An image of {origin}"
    pictures = [sizing.fit(in_8_bits(picture, name), name) for picture in column]
    mode = "L" if all(picture.mode == "L" for picture in pictures) else "RGB"
    if len(sizes := {picture.size for picture in pictures}) > 1:
        first, second = sorted(sizes)[:2]
        raise DataError(
            f"{origin}: images differ in size, such as {first} and {second}; set resize to bring them to one size."
        )
    return np.stack([np.asarray(picture.convert(mode)) for picture in pictures]) if pictures else np.empty((0, 1, 1))
