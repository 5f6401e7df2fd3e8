"""What a model can be asked about: arrays, image files, and the test split of a data set."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from refprotofl.core.errors import DataError, InputError
from refprotofl.data import Dataset, load_dataset
from refprotofl.data.array_files import BROKEN, is_npy, read_npy, read_npz
from refprotofl.data.arrays import SPLIT_ARRAYS, bring_to_uint8, channels_first
from refprotofl.data.dataset import Images, Labels
from refprotofl.data.image_files import images_below, is_image, read_images
from refprotofl.data.loading import NAMES, locate
from refprotofl.data.reading import Reading, reading_of
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Input

ARRAY_FILES = (".npz", ".npy")
FORMS = "a .npz or .npy file, an image, a folder of images, or a data set as in dataset = …"


@dataclass(frozen=True, eq=False)
class Source:
    names: Sequence[str | int]  # file names below the folder, else positions
    images: Images  # (N, channels, height, width)
    labels: Labels | None  # (N,), class numbers of the model, where the source tells them
    notes: tuple[str, ...] = ()  # what happened to the images on the way here


@dataclass(frozen=True)
class _Asked:
    """Of which run a source is asked, and where its data are looked for."""

    experiment: Experiment
    data_dir: Path | None
    reading: Reading

    @property
    def seen(self) -> Input:
        return self.experiment.known_input


def read_source(
    source: str | Path, experiment: Experiment, data_dir: Path | None, seen_from: Path | None = None
) -> Source:
    """Images in the form that the experiment's models take; of a data set the test split, with its labels.

    `seen_from` is the folder in which the run was begun, where its own data may lie.
    """
    text, path, asked = (
        str(source),
        Path(source).expanduser(),
        _Asked(experiment, data_dir, reading_of(experiment, seen_from)),
    )
    if text in NAMES or _is_own_data(text, asked):
        return _test_split(text, asked)
    if path.is_dir():
        if (path / "train").is_dir() and (path / "test").is_dir():
            return _test_split(text, asked)
        return _image_folder(path, asked)
    if path.is_file():
        return _file(path, asked)
    if path.suffix.lower() in (*ARRAY_FILES, *Image.registered_extensions()):
        raise InputError(f"There is no file {path}, seen from {Path.cwd()}.")
    return _test_split(text, asked)


def _file(path: Path, asked: _Asked) -> Source:
    if path.suffix.lower() in ARRAY_FILES:
        images = _read_array(path)
        return _test_split(str(path), asked) if images is None else _from_array(path, images, asked)
    if is_image(path):
        return Source((path.name,), np.stack([_read_image(path, asked)]), None)
    raise InputError(f"{path}: this kind of file is not read. Give {FORMS}.")


def _is_own_data(name: str, asked: _Asked) -> bool:
    """Whether this is what the run was trained on: then only its test split is fair to ask about."""
    path, own = locate(name), locate(asked.experiment.dataset, asked.reading.seen_from)
    if path is None:
        return name == asked.experiment.dataset
    return own is not None and path.samefile(own)


def _test_split(name: str, asked: _Asked) -> Source:
    # Another data set need not have clients, nor lie where the run's own does.
    own = _is_own_data(name, asked)
    reading = asked.reading if own else replace(asked.reading, natural=False, seen_from=None)
    dataset = load_dataset(asked.experiment.dataset if own else name, asked.data_dir, asked.experiment.seed, reading)
    _check_size(name, dataset.test_images.shape[1:], asked.seen)
    labels = _renumbered(name, dataset, asked.seen.class_names)
    return Source(range(len(labels)), dataset.test_images, labels, dataset.notes)


def _renumbered(name: str, dataset: Dataset, class_names: tuple[str, ...]) -> Labels:
    """The test labels as the model numbers its classes."""
    if unknown := [known for known in dataset.class_names if known not in class_names]:
        raise InputError(
            f"{name} has a class {unknown[0]!r} that the model does not know; its classes are {_some(class_names)}."
        )
    numbers = np.array([class_names.index(known) for known in dataset.class_names], dtype=np.int64)
    return numbers[dataset.test_labels]


def _image_folder(folder: Path, asked: _Asked) -> Source:
    """All images, in sub-folders too; where every one lies in a folder named like a class, that is its label."""
    names = [path.relative_to(folder) for path in images_below(folder)]
    if not names:
        raise InputError(f"{folder} has no images in it. Give {FORMS}.")
    images = np.stack([_read_image(folder / name, asked) for name in names])
    known = asked.seen.class_names
    labels = None
    if all(name.parent.name in known for name in names):
        labels = np.array([known.index(name.parent.name) for name in names], dtype=np.int64)
    return Source([name.as_posix() for name in names], images, labels)


def _read_image(file: Path, asked: _Asked) -> Images:
    """One image (channels, height, width), turned grey or RGB as the model takes it, sized as the run's were."""
    image: Images = read_images([file], asked.reading.sizing)[0]
    channels = asked.seen.shape[0]
    if len(image) == 3 and channels == 1:
        image = np.asarray(Image.fromarray(image.transpose(1, 2, 0)).convert("L"))[None]
    elif len(image) == 1 and channels == 3:
        image = image.repeat(3, axis=0)
    _check_size(str(file), image.shape, asked.seen)
    return image


def _read_array(path: Path) -> NDArray[np.generic] | None:
    """The images of an array file; None if it holds a whole data set."""

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


def _from_array(path: Path, array: NDArray[np.generic], asked: _Asked) -> Source:
    if array.dtype.kind not in "uifb":
        raise InputError(f"{path}: the images have type {array.dtype}; use uint8, or float in 0..1.")
    if array.size == 0:
        raise InputError(f"{path}: there are no images in it (shape {array.shape}).")
    pixels, _, notes = bring_to_uint8(array, array[:1], str(path))
    images = asked.reading.sizing.fit_all(channels_first(pixels, "given", str(path)), str(path))
    _check_size(str(path), images.shape[1:], asked.seen)
    return Source(range(len(images)), images, None, notes)


def _check_size(origin: str, found: tuple[int, ...], seen: Input) -> None:
    if tuple(found) != seen.shape:
        raise InputError(f"{origin}: the model takes images of {_size(seen.shape)}, but found {_size(found)}.")


def _size(shape: tuple[int, ...]) -> str:
    channels, height, width = shape
    return f"{width} x {height} pixels with {channels} channel{'s' if channels > 1 else ''}"


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
