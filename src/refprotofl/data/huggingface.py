"""Data sets of the Hugging Face hub: `hf:owner/name@revision`, through the optional package `datasets`."""

import importlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from refprotofl.core import DataError, InputError, stream
from refprotofl.data.arrays import dataset_from_arrays
from refprotofl.data.dataset import Dataset
from refprotofl.data.draws import stratified_split
from refprotofl.data.image_files import in_8_bits, pixel_limit
from refprotofl.data.reading import AS_IT_COMES, Reading, Roles, Sizing
from refprotofl.data.text_files import as_texts
from refprotofl.data.unsplit import INPUTS, LABELS, Unsplit, split_arrays, unsplit_from_arrays


def load_huggingface(name: str, seed: int, reading: Reading = AS_IT_COMES) -> Dataset:
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
        with _quiet_retries():
            splits = hub.load_dataset(repository, revision=revision)
    except Exception as error:  # the hub raises many kinds: no network, no such name, a broken script
        raise DataError(
            f"hf:{name} could not be loaded ({type(error).__name__}: {error}). Check its name and the network; a data "
            "set that was loaded before is taken from the cache with HF_HUB_OFFLINE=1."
        ) from None
    try:
        with pixel_limit():
            return dataset_from_splits(splits, f"hf:{name}", seed, reading)
    except DecompressionBombError as error:
        raise DataError(f"hf:{name} has an image that is too large ({error}): use another revision or set.") from None


@contextmanager
def _quiet_retries() -> Iterator[None]:
    """Keep the hub's lines on each attempt to connect off the terminal: the error that follows says it once."""
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "datasets", "fsspec")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def split_revision(name: str) -> tuple[str, str | None]:
    repository, _, revision = name.partition("@")
    return repository, revision or None


def dataset_from_splits(splits: Any, origin: str, seed: int, reading: Reading = AS_IT_COMES) -> Dataset:
    """Make a data set of a mapping of split names to tables with `features` and columns.

    Samples are the column of images, the texts in data.text, or else the columns of numbers.
    """
    if "train" not in splits:
        raise DataError(f"{origin} has no split called train, only {', '.join(splits)}.")
    train, roles = splits["train"], reading.roles
    if lacking := [name for name in roles.named if name not in train.features]:
        raise InputError(f"{origin} has no column {lacking[0]!r}; its columns: {', '.join(train.features)}.")
    label = roles.label or _column(train.features, "ClassLabel", ("label", "labels", "fine_label"), origin)
    columns = _sample_columns(train.features, label, roles, origin)
    test_split = next((name for name in ("test", "validation", "valid") if name in splits), None)
    names = getattr(train.features[label], "names", None)
    features = tuple(columns) if len(columns) > 1 else ()
    notes: tuple[str, ...] = ()
    if test_split is not None:
        arrays = _arrays(splits, {"train": "train", "test": test_split}, columns, label, reading, origin)
    elif roles.client or roles.group or roles.order:
        arrays, notes = split_arrays(_unsplit(train, columns, label, reading, origin), origin, seed)
    else:
        arrays = _arrays(splits, {"train": "train"}, columns, label, reading, origin)
        classes, numbers = np.unique(arrays["y_train"], return_inverse=True)
        kept, held = stratified_split(numbers, len(classes), 0.2, stream(seed, "huggingface/split"))
        sides = {"train": kept, "test": held}
        arrays = {f"{part}_{side}": arrays[f"{part}_train"][rows] for part in "xy" for side, rows in sides.items()}
    dataset = dataset_from_arrays(arrays, origin, names, reading)
    return replace(dataset, notes=(*notes, *dataset.notes), feature_names=features)


def _sample_columns(features: Mapping[str, Any], label: str, roles: Roles, origin: str) -> list[str]:
    """Return the columns that samples are made of."""
    if roles.text:
        return [roles.text]
    taken = {label, *roles.named}
    if not any(type(feature).__name__ == "Image" for feature in features.values()):
        numbers = [
            name
            for name, feature in features.items()
            if name not in taken and str(getattr(feature, "dtype", "")).startswith(("int", "uint", "float", "bool"))
        ]
        if numbers:
            return numbers
    return [_column(features, "Image", ("image", "img"), origin)]


def _samples(table: Any, columns: Sequence[str], reading: Reading, origin: str) -> np.ndarray:
    """Return the samples of a split (N, …)."""
    if columns == [reading.roles.text]:
        return as_texts([str(text or "") for text in table[columns[0]]], origin)
    if type(table.features[columns[0]]).__name__ == "Image":
        return _pictures(table[columns[0]], origin, reading.sizing)
    gaps = [[np.nan if value is None else value for value in table[name]] for name in columns]
    return np.array(gaps, np.float64).T


def _arrays(
    splits: Any, sides: Mapping[str, str], columns: Sequence[str], label: str, reading: Reading, origin: str
) -> dict[str, np.ndarray]:
    """Return the arrays of the given splits, with the clients if a column has them."""
    found: dict[str, np.ndarray] = {}
    for side, name in sides.items():
        found |= {
            f"x_{side}": _samples(splits[name], columns, reading, origin),
            f"y_{side}": np.asarray(splits[name][label]),
        }
        if reading.roles.client:
            found["client" if side == "train" else "client_test"] = np.asarray(splits[name][reading.roles.client])
    return found


def _unsplit(table: Any, columns: Sequence[str], label: str, reading: Reading, origin: str) -> Unsplit:
    """Return a table that has no test split, with its clients, groups and order."""
    roles = reading.roles
    by_role = {name: np.asarray(table[name]) for name in (roles.client, roles.group, roles.order) if name}
    arrays = {INPUTS: _samples(table, columns, reading, origin), LABELS: np.asarray(table[label]), **by_role}
    return unsplit_from_arrays(arrays, replace(roles, label="", text="", split="", ignore=()), origin)


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
