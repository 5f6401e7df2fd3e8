"""Load a data set by what the experiment names: a standard set, a path, a hub name or a function."""

import difflib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from refprotofl.core import DataError, InputError, is_reference, load_object
from refprotofl.data.array_files import BROKEN, MissingArrays, is_npy, npz_contents, read_npz
from refprotofl.data.arrays import CLIENT_ARRAYS, KIND, SPLIT_ARRAYS, VOCABULARY, dataset_from_arrays
from refprotofl.data.class_folders import NATURAL_LAYOUT, load_class_folders
from refprotofl.data.dataset import Dataset
from refprotofl.data.huggingface import load_huggingface
from refprotofl.data.locations import load_standard
from refprotofl.data.reading import AS_IT_COMES, Reading, Roles
from refprotofl.data.standard import STANDARD, load_digits
from refprotofl.data.table_data import SUFFIXES as TABLES
from refprotofl.data.table_data import is_table, read_table
from refprotofl.data.unsplit import INPUTS, LABELS, Unsplit, split_arrays, unsplit_from_arrays
from refprotofl.inputs import IMAGE, find_kind
from refprotofl.inputs.image import channel_statistics

NAMES = ("digits", *STANDARD)
CLASS_NAMES = "class_names"  # by label
FORMS = (
    f"{', '.join(NAMES)}, a path to a .npz, .csv, .tsv or .parquet file or a folder of class folders, "
    "hf:owner/name, or module:function"
)


def load_dataset(name: str, data_dir: Path | None = None, seed: int = 0, reading: Reading = AS_IT_COMES) -> Dataset:
    """Load a data set by name, path, hub name or function.

    Standard sets are searched for in `data_dir`, $REFPROTOFL_DATA and the user's cache, then downloaded. The seed only
    matters for a set without a test split.
    """
    path = locate(name, reading.seen_from)
    if path is not None and path.is_dir():
        dataset = load_class_folders(path, seed, reading)
    elif name.startswith("hf:"):
        dataset = load_huggingface(name.removeprefix("hf:"), seed, reading)
    else:
        dataset = _sized(_load_whole(name, path, data_dir, seed, reading), reading, name)
    if reading.natural and dataset.train_owners is None:
        raise InputError(
            f'partition = "natural": dataset = {name!r} does not assign its samples to clients. Use client folders '
            f"({NATURAL_LAYOUT}), an array called client next to x_train, or a column that data.client names."
        )
    if reading.natural and len(dataset.client_names) == 1:
        raise DataError(
            f"{name}: all samples are of the client {dataset.client_names[0]!r}; a federation has two or more. Name "
            "another column in data.client, or draw clients with another partition."
        )
    return dataset


def _load_whole(name: str, path: Path | None, data_dir: Path | None, seed: int, reading: Reading) -> Dataset:
    """Load a data set from a source whose samples already have one size."""
    if name == "digits":
        return load_digits()
    if name in STANDARD:
        return load_standard(STANDARD[name], data_dir)
    if path is not None and path.is_file() and path.suffix == ".npz":
        return load_npz(path, seed, reading)
    if path is not None and path.is_file() and is_table(path):
        return _split(read_table(path, reading.roles, reading.kind), str(path), seed, reading)
    if is_reference(name):
        return load_from_function(name, seed, reading)
    raise InputError(_complaint(name, path or Path(name).expanduser(), reading.seen_from))


def is_relative(name: str) -> bool:
    """Return True for a relative path, which is neither a name nor the user's own code."""
    named = name in NAMES or name.startswith("hf:") or is_reference(name)
    return not named and not Path(name).expanduser().is_absolute()


def locate(name: str, seen_from: Path | None = None) -> Path | None:
    """Return the file or folder of this name: first relative to a stored run's folder, then to the working folder."""
    if name in NAMES or name.startswith("hf:"):
        return None
    path = Path(name).expanduser()
    return next((place for place in ((seen_from or Path()) / path, path) if place.exists()), None)


def _sized(dataset: Dataset, reading: Reading, origin: str) -> Dataset:
    sizing = reading.sizing
    if not sizing:
        return dataset
    if dataset.kind != IMAGE:
        raise InputError(f"{sizing} is for images, but the samples of {origin} are {find_kind(dataset.kind).plural}.")
    train, test = sizing.fit_all(dataset.train_inputs, origin), sizing.fit_all(dataset.test_inputs, origin)
    mean, std = channel_statistics(train)
    return replace(dataset, train_inputs=train, test_inputs=test, mean=mean, std=std)


def _complaint(name: str, path: Path, seen_from: Path | None) -> str:
    if path.is_file():
        return f"dataset = {name!r}: files of this type are not supported. Allowed: {FORMS}."
    if (
        seen_from is not None
        or path.suffix in (".npz", *TABLES)
        or any(separator in name for separator in ("/", os.sep))
    ):
        begun = f" nor in {seen_from}, where the run began" if seen_from is not None else ""
        return f"dataset = {name!r}: path not found in {Path.cwd()}{begun}."
    nearest = difflib.get_close_matches(name.lower().replace("_", "-"), NAMES, n=1, cutoff=0.5)
    guess = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return f"dataset = {name!r} is unknown.{guess} Allowed: {FORMS}."


def load_npz(path: Path, seed: int = 0, reading: Reading = AS_IT_COMES) -> Dataset:
    """Load x_train, y_train, x_test, y_test, or x and y, which are split here; data.label and the like name others."""
    known = (*SPLIT_ARRAYS, *CLIENT_ARRAYS, KIND, VOCABULARY, INPUTS, LABELS, CLASS_NAMES, *reading.roles.named)
    try:
        if is_npy(path):
            raise DataError(f"{path} holds a single array; save {', '.join(SPLIT_ARRAYS)} with numpy.savez_compressed.")
        arrays = read_npz(path, lambda names: [name for name in known if name in names])
    except BROKEN as error:
        raise DataError(
            f"{path} is not a readable .npz file ({error}): save it again with numpy.savez_compressed."
        ) from None
    try:
        return _from_arrays(arrays, str(path), seed, reading)
    except MissingArrays as error:
        raise MissingArrays(f"{error} {npz_contents(path)}") from None


def _from_arrays(arrays: Mapping[str, Any], origin: str, seed: int, reading: Reading) -> Dataset:
    """Make a data set of arrays with or without a split."""
    if any(name in arrays for name in SPLIT_ARRAYS) or (INPUTS not in arrays and not reading.roles.text):
        return dataset_from_arrays(_by_role(arrays, reading.roles), origin, reading=reading)
    return _split(unsplit_from_arrays(arrays, reading.roles, origin), origin, seed, reading, arrays)


def _by_role(arrays: Mapping[str, Any], roles: Roles) -> dict[str, Any]:
    """Return the arrays of a split data set with the clients under their usual names."""
    renamed = {roles.client: "client", f"{roles.client}_test": "client_test"} if roles.client else {}
    return {renamed.get(name, name): values for name, values in arrays.items()}


def _split(
    found: Unsplit, origin: str, seed: int, reading: Reading, arrays: Mapping[str, Any] | None = None
) -> Dataset:
    """Make a data set of samples without a split."""
    given = arrays or {}
    parts, notes = split_arrays(found, origin, seed)
    parts |= {name: given[name] for name in (KIND, VOCABULARY) if name in given}
    names = [str(name) for name in np.ravel(given[CLASS_NAMES])] if CLASS_NAMES in given else None
    dataset = dataset_from_arrays(parts, origin, names, reading)
    return replace(dataset, notes=(*notes, *dataset.notes), feature_names=found.feature_names)


def load_from_function(name: str, seed: int = 0, reading: Reading = AS_IT_COMES) -> Dataset:
    """Call the function without arguments; it returns a mapping of the arrays of a .npz file, or a Dataset."""
    function = load_object(name, "dataset")
    try:
        result = function()
    except Exception as error:
        raise DataError(f"dataset = {name!r}: the function failed with {type(error).__name__}: {error}.") from error
    if isinstance(result, Dataset):
        # A user's Dataset passes the same checks as arrays.
        kind = find_kind(result.kind)
        train, known = kind.stored(result.train_inputs, result.vocabulary)
        test, known_in_test = kind.stored(result.test_inputs, result.vocabulary)
        splits = (train, result.train_labels, test, result.test_labels)
        arrays = dict(zip(SPLIT_ARRAYS, splits, strict=True))
        arrays[VOCABULARY] = np.array(max(known, known_in_test, key=len))
        for key, owners in zip(CLIENT_ARRAYS, (result.train_owners, result.test_owners), strict=True):
            if owners is not None:
                arrays[key] = np.array(result.client_names)[owners]
        return dataset_from_arrays(arrays, name, result.class_names, replace(reading, kind=result.kind))
    if not isinstance(result, Mapping):
        raise DataError(
            f"dataset = {name!r}: the function returned {type(result).__name__}; "
            f"it must return a mapping with {', '.join(SPLIT_ARRAYS)}, or with x and y, or a Dataset."
        )
    return _from_arrays(result, name, seed, reading)
