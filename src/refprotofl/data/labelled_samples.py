"""Labelled samples that are not a whole data set: a public set, a test set, the data of one node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError, is_reference, load_object
from refprotofl.core.inputs import InputKind, Statistics
from refprotofl.data.array_files import BROKEN, MissingArrays, npz_contents, read_npz
from refprotofl.data.arrays import KIND, VOCABULARY, check_alike, check_complete, checked_labels, find_kind_of
from refprotofl.data.class_folders import form_of, list_classes
from refprotofl.data.dataset import Dataset, Inputs, Labels
from refprotofl.data.loading import load_dataset, locate
from refprotofl.data.reading import AS_IT_COMES, Reading
from refprotofl.data.table_data import find_features, is_table, open_table, read_table
from refprotofl.data.unsplit import split_arrays
from refprotofl.experiment import Input
from refprotofl.inputs import IMAGE, find_kind
from refprotofl.inputs.image import channel_statistics

PAIRS = (("x", "y"), ("x_train", "y_train"))
TEST = ("x_test", "y_test")
ARRAYS = (*PAIRS[0], *PAIRS[1], *TEST, "class_names", "mean", "std", KIND, VOCABULARY)
FORM = "x and y, or x_train and y_train and optionally x_test and y_test"


@dataclass(frozen=True, eq=False)
class LabelledSamples:
    inputs: Inputs
    labels: Labels
    class_names: tuple[str, ...]  # by label; a class need not have a sample
    mean: tuple[float, ...]  # by feature; per channel of images, on the 0..1 scale
    std: tuple[float, ...]
    test: "LabelledSamples | None" = None  # the test split of the source
    kind: str = IMAGE
    vocabulary: tuple[str, ...] = ()  # of tokens, as the source numbers them
    feature_names: tuple[str, ...] = ()  # of a table's columns
    groups: NDArray[np.int64] | None = None  # (N,) samples of one group stay on one side of a split
    order: NDArray[np.float64] | None = None  # (N,) the latest are held out

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inputs.shape[1:]


def load_labelled(name: str, key: str, data_dir: Path | None, reading: Reading, seed: int = 0) -> LabelledSamples:
    """Load the samples of a .npz file, a table, a folder of class folders, `module:function` or a named set.

    `key` is the configuration key of the name, for errors.
    """
    path = locate(name, reading.seen_from)
    if path is not None and path.is_dir() and not (path / "train").is_dir():
        form = form_of(path)
        listed = list_classes(path, form)
        samples = form.read([one.file for one in listed], reading)
        return labelled_from_arrays({"x": samples, "y": np.array([one.label for one in listed])}, str(path), reading)
    if path is not None and path.is_file() and path.suffix == ".npz":
        found = _from_npz(path, reading)
    elif path is not None and path.is_file() and is_table(path):
        found = _from_table(path, reading)
    elif path is None and is_reference(name) and not name.startswith("hf:"):
        found = _from_function(name, key, reading)
    else:
        return _of_dataset(load_dataset(name, data_dir, seed, replace(reading, natural=False)))
    return _sized(found, reading, name)


def _from_table(path: Path, reading: Reading) -> LabelledSamples:
    """Load a table of one client."""
    with open_table(path, reading.roles.named) as table:
        roles = reading.roles.of_one(table.names)
    rows = read_table(path, roles, reading.kind)
    if rows.test is not None:
        arrays, _ = split_arrays(rows, str(path), 0)
        return replace(labelled_from_arrays(arrays, str(path), reading), feature_names=rows.feature_names)
    found = labelled_from_arrays({"x": rows.inputs, "y": rows.labels}, str(path), reading)
    return replace(found, feature_names=rows.feature_names, groups=rows.groups, order=rows.order)


def labelled_from_arrays(arrays: Mapping[str, Any], origin: str, reading: Reading = AS_IT_COMES) -> LabelledSamples:
    """Make labelled samples of a user's arrays, with the same checks as for a whole data set."""
    pair = next((pair for pair in PAIRS if all(name in arrays for name in pair)), None)
    if pair is None:
        raise MissingArrays(f"{origin} must hold {FORM}.")
    raw, labels = (np.asarray(arrays[name]) for name in pair)
    tested = all(name in arrays for name in TEST)
    raw_test = np.asarray(arrays[TEST[0]]) if tested else raw
    named = [str(name) for name in np.asarray(arrays["class_names"])] if "class_names" in arrays else None
    kind = find_kind_of(raw, arrays, reading.kind)
    vocabulary = tuple(str(token) for token in np.ravel(arrays.get(VOCABULARY, ())))
    found = kind.convert(raw, raw_test, origin, reading.code, vocabulary)
    check_alike(kind, found.train, found.test, origin)
    check_complete(found.train, "train", reading, origin)
    train = _class_names(labels, "train", named, origin)
    test = (
        _class_names(np.asarray(arrays[TEST[1]]), "test", named, origin)
        if tested
        else NamedLabels([], np.zeros(0, int))
    )
    names = tuple(named) if named is not None else _in_order({*train.names, *test.names})
    mean, std = _statistics(arrays, kind, found.train)
    whole = LabelledSamples(
        found.train, _numbered(train, names, origin), names, mean, std, kind=kind.name, vocabulary=found.vocabulary
    )
    if not tested:
        return _checked(whole, origin)
    check_complete(found.test, "test", reading, origin)
    apart = replace(whole, inputs=found.test, labels=_numbered(test, names, origin))
    return _checked(replace(whole, test=_checked(apart, origin)), origin)


def renumbered(found: LabelledSamples, seen: Input, origin: str) -> LabelledSamples:
    """Return the samples with the class numbers and tokens of an experiment; raise DataError if they do not fit it."""
    kind = seen.input_kind
    if found.kind != seen.kind:
        raise DataError(f"{origin}: its samples are {find_kind(found.kind).plural}, the experiment's {kind.plural}.")
    inputs = kind.fit(found.inputs, found.vocabulary, seen.shape, seen.vocabulary)
    if seen.feature_names and found.feature_names and found.feature_names != seen.feature_names:
        inputs = inputs[:, find_features(found.feature_names, seen.feature_names, origin)]
    if inputs.shape[1:] != seen.shape:
        raise DataError(
            f"{origin}: its {kind.plural} are {kind.describe(found.shape)}, but the experiment's are "
            f"{kind.describe(seen.shape)}. {kind.remedy}"
        )
    occurring = [found.class_names[label] for label in np.unique(found.labels)]
    if unknown := [name for name in occurring if name not in seen.class_names]:
        known = ", ".join(seen.class_names)
        raise DataError(f"{origin}: the experiment has no class {unknown[0]!r}; its classes: {known}.")
    numbers = np.array([seen.class_names.index(name) if name in seen.class_names else -1 for name in found.class_names])
    return replace(
        found,
        inputs=inputs,
        labels=numbers[found.labels],
        class_names=seen.class_names,
        vocabulary=seen.vocabulary,
        feature_names=seen.feature_names,
        test=None if found.test is None else renumbered(found.test, seen, origin),
    )


def _from_npz(path: Path, reading: Reading) -> LabelledSamples:
    try:
        return labelled_from_arrays(_arrays_of(path), str(path), reading)
    except MissingArrays as error:
        raise MissingArrays(f"{error} {npz_contents(path)}") from None


def _arrays_of(path: Path) -> dict[str, Any]:
    try:
        return dict(read_npz(path, lambda names: [name for name in ARRAYS if name in names]))
    except BROKEN as error:
        raise DataError(
            f"{path} is not a readable .npz file ({error}): save it again with numpy.savez_compressed."
        ) from None


def _from_function(name: str, key: str, reading: Reading) -> LabelledSamples:
    function = load_object(name, key)
    try:
        result = function()
    except Exception as error:
        raise DataError(f"{key} = {name!r}: the function failed with {type(error).__name__}: {error}.") from error
    if isinstance(result, Dataset):
        return _of_dataset(result)
    if not isinstance(result, Mapping):
        raise DataError(
            f"{key} = {name!r}: the function returned {type(result).__name__}; it must return a mapping with {FORM}."
        )
    return labelled_from_arrays(result, name, reading)


def _of_dataset(dataset: Dataset) -> LabelledSamples:
    kind = find_kind(dataset.kind)
    mean, std = (dataset.mean, dataset.std) if kind.published else kind.statistics(dataset.train_inputs)
    train = LabelledSamples(
        dataset.train_inputs,
        dataset.train_labels,
        dataset.class_names,
        mean,
        std,
        kind=dataset.kind,
        vocabulary=dataset.vocabulary,
        feature_names=dataset.feature_names,
    )
    return replace(train, test=replace(train, inputs=dataset.test_inputs, labels=dataset.test_labels))


def _sized(found: LabelledSamples, reading: Reading, origin: str) -> LabelledSamples:
    if not reading.sizing:
        return found
    images = reading.sizing.fit_all(found.inputs, origin)
    mean, std = channel_statistics(images)
    test = None if found.test is None else _sized(found.test, reading, origin)
    return replace(found, inputs=images, mean=mean, std=std, test=test)


def _statistics(arrays: Mapping[str, Any], kind: InputKind, inputs: Inputs) -> Statistics:
    """Return mean and deviation as the source has them, so that a part of a set can keep those of the whole."""
    if "mean" in arrays and "std" in arrays:
        mean, std = (tuple(float(value) for value in np.ravel(arrays[name])) for name in ("mean", "std"))
        if len(mean) == len(std) == kind.features(inputs.shape[1:]) and min(std, default=1) > 0:
            return mean, std
    return kind.statistics(inputs)


class NamedLabels(NamedTuple):
    """The class of each sample, as its position among the names that occur: a string per sample would take 50 bytes."""

    names: list[str]
    positions: NDArray[np.int64]  # (N,)


def _class_names(labels: NDArray[Any], split: str, named: Sequence[str] | None, origin: str) -> NamedLabels:
    """Return the class name of each sample; without names the label itself."""
    checked = checked_labels(labels, split, origin)
    found, positions = np.unique(checked, return_inverse=True)
    if checked.dtype.kind == "U" or named is None:
        return NamedLabels([str(label) for label in found.tolist()], positions)
    if int(found[-1]) >= len(named):
        raise DataError(f"{origin}: there is a label {found[-1]}, but only {len(named)} class names.")
    return NamedLabels([named[label] for label in found.tolist()], positions)


def _in_order(names: set[str]) -> tuple[str, ...]:
    """Sort names, by value if all are whole numbers."""
    return tuple(sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names))


def _numbered(labels: NamedLabels, names: Sequence[str], origin: str) -> Labels:
    numbers = {name: number for number, name in enumerate(names)}
    if unknown := sorted({name for name in labels.names if name not in numbers}):
        raise DataError(f"{origin}: the label {unknown[0]!r} is not among its class_names.")
    return np.array([numbers[name] for name in labels.names], np.int64)[labels.positions]


def _checked(found: LabelledSamples, origin: str) -> LabelledSamples:
    if len(found.inputs) != len(found.labels):
        raise DataError(f"{origin}: there are {len(found.inputs):,} samples but {len(found.labels):,} labels.")
    return found
