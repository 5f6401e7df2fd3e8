"""A user's own data as files in one folder per class, optionally below folders for clients, train and test.

The files are images, texts or sounds; those of other forms are ignored.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError, stream
from refprotofl.data.arrays import dataset_from_arrays
from refprotofl.data.dataset import Dataset
from refprotofl.data.draws import stratified_split
from refprotofl.data.image_files import is_image, read_images
from refprotofl.data.reading import Reading
from refprotofl.data.sound_files import is_sound, read_sounds
from refprotofl.data.text_files import is_text, read_texts

LAYOUT = "FOLDER/train/CLASS/*.png and FOLDER/test/CLASS/*.png, or FOLDER/CLASS/*.png"
NATURAL_LAYOUT = (
    "FOLDER/train/CLIENT/CLASS/*.png and FOLDER/test/CLIENT/CLASS/*.png (or FOLDER/test/CLASS/*.png), "
    "or FOLDER/CLIENT/CLASS/*.png"
)
LAYOUTS = f'Allowed layouts: {LAYOUT}; with partition = "natural": {NATURAL_LAYOUT}.'


@dataclass(frozen=True)
class FileForm:
    """A form of files that are samples."""

    plural: str
    matches: Callable[[Path], bool]
    read: Callable[[list[Path], Reading], NDArray[Any]]


IMAGES = FileForm("images", is_image, lambda files, reading: read_images(files, reading.sizing))
SOUNDS = FileForm("sounds", is_sound, lambda files, reading: read_sounds(files))
TEXTS = FileForm("texts", is_text, lambda files, reading: read_texts(files))
MOST_LOOKED_AT = 10_000  # files, to find out their form


class Listed(NamedTuple):
    file: Path
    label: str
    client: str | None


def form_of(folder: Path) -> FileForm:
    """Return the form of the files below a folder's folders: images if there are any, else sounds, else texts."""
    inner = (Path(place) / name for place, _, names in os.walk(folder) if Path(place) != folder for name in names)
    files = list(islice(inner, MOST_LOOKED_AT))
    return next((form for form in (IMAGES, SOUNDS, TEXTS) if any(map(form.matches, files))), IMAGES)


def files_below(folder: Path, form: FileForm = IMAGES) -> Iterator[Path]:
    """Yield all files of a form below a folder, sorted; hidden folders are skipped."""
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and form.matches(path) and path.is_file():
            yield path


def load_class_folders(folder: Path, seed: int, reading: Reading) -> Dataset:
    """Load class folders, one set per client with natural clients; without train/ and test/ split 80/20 by the seed."""
    if (folder / "train").is_dir() != (folder / "test").is_dir():
        there, missing = ("train", "test") if (folder / "train").is_dir() else ("test", "train")
        raise DataError(f"{folder} has a folder {there} but no folder {missing}. Allowed layouts: {LAYOUT}.")
    form = form_of(folder)
    list_all = list_clients if reading.natural else list_classes
    notes: tuple[str, ...] = ()
    if (folder / "train").is_dir():
        _refuse_loose(folder, form)
        train, test = list_all(folder / "train", form), _list_test(folder / "test", reading.natural, form)
        unused = [path.name for path in _folders(folder) if path.name not in ("train", "test")]
        notes = tuple(f"{folder / name} is not used: only train and test are read." for name in unused)
    else:
        train, test = _split(list_all(folder, form), seed, folder, form)
    dataset = dataset_from_arrays(_arrays(train, test, reading, form), str(folder), reading=reading)
    return replace(dataset, notes=(*notes, *dataset.notes))


def _arrays(train: list[Listed], test: list[Listed], reading: Reading, form: FileForm) -> dict[str, NDArray[Any]]:
    samples = form.read([listed.file for listed in train + test], reading)
    arrays = {
        "x_train": samples[: len(train)],
        "x_test": samples[len(train) :],
        "y_train": np.array([listed.label for listed in train]),
        "y_test": np.array([listed.label for listed in test]),
    }
    for name, split in (("client", train), ("client_test", test)):
        if split[0].client is not None:
            arrays[name] = np.array([listed.client for listed in split])
    return arrays


def list_clients(folder: Path, form: FileForm = IMAGES) -> list[Listed]:
    """List all files with their classes and clients, sorted."""
    _refuse_loose(folder, form)
    clients = _folders(folder)
    if not clients:
        raise DataError(
            f'{folder} is empty or has no client folders. Layouts for partition = "natural": {NATURAL_LAYOUT}.'
        )
    found: list[Listed] = []
    for client in clients:
        if not _folders(client):
            raise DataError(f'{client} has no class folders. Layouts for partition = "natural": {NATURAL_LAYOUT}.')
        own = list_classes(client, form, client.name)
        if not own:
            raise DataError(f"{client} contains no {form.plural}: add some or remove the folder.")
        found += own
    return found


def list_classes(folder: Path, form: FileForm = IMAGES, client: str | None = None) -> list[Listed]:
    """List all files with their classes, sorted, so that the order is the same on every machine."""
    _refuse_loose(folder, form)
    found: list[Listed] = []
    classes = _folders(folder)
    if not classes:
        raise DataError(f"{folder} is empty or has no class folders. {LAYOUTS}")
    for class_folder in classes:
        files = list(files_below(class_folder, form))
        if nested := next((file for file in files if file.parent != class_folder), None):
            raise DataError(
                f"{nested} is not directly in its class folder {class_folder}, so its class is not clear. {LAYOUTS}"
            )
        if not files and client is None:  # a client need not have all classes
            raise DataError(f"{class_folder} contains no {form.plural}: add some or remove the folder.")
        found += [Listed(file, class_folder.name, client) for file in files]
    return found


def _list_test(folder: Path, natural: bool, form: FileForm) -> list[Listed]:
    """List the test files, by client if the folders are; natural clients may have a common test set."""
    common = any(form.matches(path) for inner in _folders(folder) for path in inner.iterdir())
    return list_clients(folder, form) if natural and not common else list_classes(folder, form)


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _refuse_loose(folder: Path, form: FileForm) -> None:
    """Raise DataError for a file next to folders: it belongs to none of them, and is not skipped silently."""
    loose = sorted(path for path in folder.iterdir() if path.is_file() and form.matches(path))
    if loose and form is not TEXTS and _folders(folder):  # a README is not a sample
        raise DataError(f"{loose[0]} is next to folders and in none of them: move it into one, or out of {folder}.")


def _split(listed: list[Listed], seed: int, folder: Path, form: FileForm) -> tuple[list[Listed], list[Listed]]:
    """Hold out a fifth of each class, with natural clients of each client's class."""
    groups = [f"{one.client}/{one.label}" if one.client is not None else one.label for one in listed]
    names, labels = np.unique(groups, return_inverse=True)
    train, test = stratified_split(labels, len(names), 0.2, stream(seed, "image-folder/split"))
    if not len(test):
        raise DataError(f"{folder} has too few {form.plural} to hold out a fifth of each class for testing: add some.")
    return [listed[position] for position in train], [listed[position] for position in test]
