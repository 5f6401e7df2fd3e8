"""Sources of samples for predictions: arrays, image files, and the test split of a data set."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from refprotofl.core import DataError, InputError
from refprotofl.data import (
    Dataset,
    Reading,
    is_image,
    is_sound,
    is_table,
    is_text,
    load_dataset,
    read_features,
    read_images,
    reading_of,
)
from refprotofl.data.array_files import BROKEN, is_npy, read_npy, read_npz
from refprotofl.data.arrays import SPLIT_ARRAYS, check_complete
from refprotofl.data.class_folders import IMAGES, SOUNDS, TEXTS, files_below, form_of
from refprotofl.data.dataset import Images, Inputs, Labels
from refprotofl.data.loading import NAMES, locate
from refprotofl.data.table_data import SUFFIXES as TABLES
from refprotofl.experiment import Experiment, Input
from refprotofl.inputs import find_kind

ARRAY_FILES = (".npz", ".npy")
FORMS = (
    "a .npz, .npy, .csv, .tsv or .parquet file, an image, a text, a sound, a folder of these, or a data set as in "
    "dataset = …"
)


@dataclass(frozen=True, eq=False)
class Source:
    """Samples in the form that a model takes, with names and, where known, labels."""

    names: Sequence[str | int]  # file names below the folder, else positions
    inputs: Inputs  # (N, …)
    labels: Labels | None  # (N,), class numbers of the model, where the source has them
    notes: tuple[str, ...] = ()  # changes to the data while they were read


@dataclass(frozen=True)
class _RunData:
    """The run whose model predicts, and the folders that are searched for data."""

    experiment: Experiment
    data_dir: Path | None
    reading: Reading

    @property
    def input(self) -> Input:
        return self.experiment.known_input


def read_source(
    source: str | Path, experiment: Experiment, data_dir: Path | None, seen_from: Path | None = None
) -> Source:
    """Read samples in the form that the experiment's models take; of a data set the test split, with its labels.

    `seen_from` is the folder in which the run began, and relative paths to its own data start there.
    """
    text, path = str(source), Path(source).expanduser()
    run = _RunData(experiment, data_dir, reading_of(experiment, seen_from))
    if text in NAMES or _is_own_data(text, run):
        return _test_split(text, run)
    if path.is_dir():
        if (path / "train").is_dir() and (path / "test").is_dir():
            return _test_split(text, run)
        return _folder(path, run)
    if path.is_file():
        return _file(path, run)
    if path.suffix.lower() in (*ARRAY_FILES, *TABLES, *Image.registered_extensions()):
        raise InputError(f"Path not found: {path}, in {Path.cwd()}.")
    return _test_split(text, run)


def read_samples(values: NDArray[np.generic], experiment: Experiment) -> Source:
    """Read samples (N, …) that are in memory, in the form that the experiment's models take."""
    return _from_array(Path("the samples"), values, _RunData(experiment, None, reading_of(experiment, None)))


def _file(path: Path, run: _RunData) -> Source:
    if path.suffix.lower() in ARRAY_FILES:
        images = _read_array(path)
        return _test_split(str(path), run) if images is None else _from_array(path, images, run)
    if is_table(path):
        return _from_table(path, run)
    if is_sound(path) or (is_text(path) and run.input.kind == "tokens"):
        return Source((path.name,), _read_files(path.parent, [Path(path.name)], run), None)
    if is_image(path):
        return Source((path.name,), np.stack([_read_image(path, run)]), None)
    raise InputError(f"{path}: files of this type are not supported. Give {FORMS}.")


def _is_own_data(name: str, run: _RunData) -> bool:
    """Return True if the run was trained on this data set: then only its test split is used."""
    path, own = locate(name), locate(run.experiment.dataset, run.reading.seen_from)
    if path is None:
        return name == run.experiment.dataset
    return own is not None and path.samefile(own)


def _test_split(name: str, run: _RunData) -> Source:
    # Another data set need not have clients, nor be in the folder of the run's own.
    own = _is_own_data(name, run)
    reading = run.reading if own else replace(run.reading, natural=False, seen_from=None)
    dataset = load_dataset(run.experiment.dataset if own else name, run.data_dir, run.experiment.seed, reading)
    seen = run.input
    if dataset.kind != seen.kind:
        found = find_kind(dataset.kind).plural
        raise InputError(f"{name}: its samples are {found}, but the model takes {seen.input_kind.plural}.")
    inputs = seen.input_kind.fit(dataset.test_inputs, dataset.vocabulary, seen.shape, seen.vocabulary)
    _check_shape(name, inputs.shape[1:], seen)
    labels = _renumbered(name, dataset, seen.class_names)
    rows = dataset.test_rows
    names = range(len(labels)) if rows is None else rows.tolist()
    note = f"{name}: predictions are for its {len(labels):,} test samples, by their positions in it, from 0."
    return Source(names, inputs, labels, dataset.notes if rows is None else (*dataset.notes, note))


def _renumbered(name: str, dataset: Dataset, class_names: tuple[str, ...]) -> Labels:
    """Return the test labels as the model's class numbers."""
    if unknown := [known for known in dataset.class_names if known not in class_names]:
        raise InputError(
            f"{name} has a class {unknown[0]!r} that is unknown to the model; its classes are {_some(class_names)}."
        )
    numbers = np.array([class_names.index(known) for known in dataset.class_names], dtype=np.int64)
    return numbers[dataset.test_labels]


def _folder(folder: Path, run: _RunData) -> Source:
    """Read all files below a folder; if every file is in a folder named like a class, that is its label."""
    form = form_of(folder)
    names = [path.relative_to(folder) for path in files_below(folder, form)]
    if not names:
        raise InputError(f"{folder} contains no {form.plural}. Give {FORMS}.")
    if form is IMAGES:
        samples = np.stack([_read_image(folder / name, run) for name in names])
    else:
        samples = _read_files(folder, names, run)
    known = run.input.class_names
    labels = None
    if all(name.parent.name in known for name in names):
        labels = np.array([known.index(name.parent.name) for name in names], dtype=np.int64)
    return Source([name.as_posix() for name in names], samples, labels)


def _read_files(folder: Path, names: Sequence[Path], run: _RunData) -> Inputs:
    """Read texts or sounds as the model takes them."""
    files = [folder / name for name in names]
    form = next(form for form in (SOUNDS, TEXTS) if form.matches(files[0]))
    return _from_array(folder, form.read(files, run.reading), run).inputs


def _read_image(file: Path, run: _RunData) -> Images:
    """Read one image (channels, height, width), converted to the model's channels and sized as the run's were."""
    image: Images = read_images([file], run.reading.sizing)[0]
    channels = run.input.shape[0]
    if len(image) == 3 and channels == 1:
        image = np.asarray(Image.fromarray(image.transpose(1, 2, 0)).convert("L"))[None]
    elif len(image) == 1 and channels == 3:
        image = image.repeat(3, axis=0)
    _check_shape(str(file), image.shape, run.input)
    return image


def _read_array(path: Path) -> NDArray[np.generic] | None:
    """Read the images of an array file; None if it holds a whole data set."""

    def choose(names: list[str]) -> list[str]:
        return [] if set(SPLIT_ARRAYS) <= set(names) else [_choose(path, names)]

    try:
        return read_npy(path) if is_npy(path) else next(iter(read_npz(path, choose).values()), None)
    except BROKEN as problem:
        raise DataError(f"{path} cannot be read as a numeric array ({problem}): save it again with numpy.") from None


def _choose(path: Path, names: list[str]) -> str:
    for name in ("x", "x_test", *names[: len(names) == 1]):
        if name in names:
            return name
    raise InputError(
        f"{path} holds {', '.join(names) or 'no arrays'}; the images must be called x or x_test, or be the only array."
    )


def _from_array(path: Path, array: NDArray[np.generic], run: _RunData) -> Source:
    kind, seen = run.input.input_kind, run.input
    if not array.size:
        raise InputError(f"{path} contains no {kind.plural} (shape {array.shape}).")
    found = kind.convert(array, array[:1], str(path), run.reading.code, seen.vocabulary)
    inputs = run.reading.sizing.fit_all(found.train, str(path)) if run.reading.sizing else found.train
    inputs = kind.fit(inputs, found.vocabulary, seen.shape, seen.vocabulary)
    _check_shape(str(path), inputs.shape[1:], seen)
    check_complete(inputs, "given", run.reading, str(path))
    return Source(range(len(inputs)), inputs, None, found.notes)


def _from_table(path: Path, run: _RunData) -> Source:
    """Read a table whose columns are found by name; with a label in each row, accuracies are known."""
    array, labels = read_features(path, run.reading.roles, run.input.feature_names, run.input.kind)
    source = _from_array(path, array, run)
    if labels is None:
        return source
    known = {_as_written(name): number for number, name in enumerate(run.input.class_names)}
    written = [_as_written(label) for label in labels]
    if unknown := [label for label, name in zip(labels, written, strict=True) if name not in known]:
        raise InputError(
            f"{path} has a class {unknown[0]!r} that is unknown to the model; its classes are "
            f"{_some(run.input.class_names)}."
        )
    return replace(source, labels=np.array([known[name] for name in written], np.int64))


def _as_written(label: str) -> str:
    """Return a label as classes are named: 1.0 as 1."""
    try:
        value = float(label)
    except ValueError:
        return label
    return str(int(value)) if value.is_integer() else label


def _check_shape(origin: str, found: tuple[int, ...], seen: Input) -> None:
    if tuple(found) != seen.shape:
        kind = seen.input_kind
        described = kind.describe(found) if len(found) == len(kind.axes) else f"of shape {tuple(found)}"
        raise InputError(
            f"{origin}: its {kind.plural} are {described}, but the model takes {kind.describe(seen.shape)}."
        )


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
