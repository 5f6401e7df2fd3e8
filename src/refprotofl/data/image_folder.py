"""A user's own data as image files in one folder per class, optionally below folders for clients, train and test."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from refprotofl.core import DataError, stream
from refprotofl.data.arrays import dataset_from_arrays
from refprotofl.data.dataset import Dataset
from refprotofl.data.draws import stratified_split
from refprotofl.data.image_files import images_below, is_image, read_images
from refprotofl.data.reading import Reading

LAYOUT = "FOLDER/train/CLASS/*.png and FOLDER/test/CLASS/*.png, or FOLDER/CLASS/*.png"
NATURAL_LAYOUT = (
    "FOLDER/train/CLIENT/CLASS/*.png and FOLDER/test/CLIENT/CLASS/*.png (or FOLDER/test/CLASS/*.png), "
    "or FOLDER/CLIENT/CLASS/*.png"
)
LAYOUTS = f'Allowed layouts: {LAYOUT}; with partition = "natural": {NATURAL_LAYOUT}.'


class Listed(NamedTuple):
    file: Path
    label: str
    client: str | None


def load_image_folder(folder: Path, seed: int, reading: Reading) -> Dataset:
    """Load class folders, one set per client with natural clients; without train/ and test/ split 80/20 by the seed."""
    if (folder / "train").is_dir() != (folder / "test").is_dir():
        there, missing = ("train", "test") if (folder / "train").is_dir() else ("test", "train")
        raise DataError(f"{folder} has a folder {there} but no folder {missing}. Allowed layouts: {LAYOUT}.")
    list_all = list_clients if reading.natural else list_classes
    notes: tuple[str, ...] = ()
    if (folder / "train").is_dir():
        _refuse_loose(folder)
        train, test = list_all(folder / "train"), _list_test(folder / "test", reading.natural)
        unused = [path.name for path in _folders(folder) if path.name not in ("train", "test")]
        notes = tuple(f"{folder / name} is not used: only train and test are read." for name in unused)
    else:
        train, test = _split(list_all(folder), seed, folder)
    dataset = dataset_from_arrays(_arrays(train, test, reading), str(folder))
    return replace(dataset, notes=(*notes, *dataset.notes))


def _arrays(train: list[Listed], test: list[Listed], reading: Reading) -> dict[str, np.ndarray]:
    images = read_images([listed.file for listed in train + test], reading.sizing)
    arrays = {
        "x_train": images[: len(train)],
        "x_test": images[len(train) :],
        "y_train": np.array([listed.label for listed in train]),
        "y_test": np.array([listed.label for listed in test]),
    }
    for name, split in (("client", train), ("client_test", test)):
        if split[0].client is not None:
            arrays[name] = np.array([listed.client for listed in split])
    return arrays


def list_clients(folder: Path) -> list[Listed]:
    """List all images with their classes and clients, sorted."""
    _refuse_loose(folder)
    clients = _folders(folder)
    if not clients:
        raise DataError(
            f'{folder} is empty or has no client folders. Layouts for partition = "natural": {NATURAL_LAYOUT}.'
        )
    found: list[Listed] = []
    for client in clients:
        if not _folders(client):
            raise DataError(f'{client} has no class folders. Layouts for partition = "natural": {NATURAL_LAYOUT}.')
        own = list_classes(client, client.name)
        if not own:
            raise DataError(f"{client} contains no images: add some or remove the folder.")
        found += own
    return found


def list_classes(folder: Path, client: str | None = None) -> list[Listed]:
    """List all images with their classes, sorted, so that the order is the same on every machine."""
    _refuse_loose(folder)
    found: list[Listed] = []
    classes = _folders(folder)
    if not classes:
        raise DataError(f"{folder} is empty or has no class folders. {LAYOUTS}")
    for class_folder in classes:
        files = list(images_below(class_folder))
        if nested := next((file for file in files if file.parent != class_folder), None):
            raise DataError(
                f"{nested} is not directly in its class folder {class_folder}, so its class is not clear. {LAYOUTS}"
            )
        if not files and client is None:  # a client need not have all classes
            raise DataError(f"{class_folder} contains no images: add some or remove the folder.")
        found += [Listed(file, class_folder.name, client) for file in files]
    return found


def _list_test(folder: Path, natural: bool) -> list[Listed]:
    """List the test images, by client if the folders are; natural clients may have a common test set."""
    common = any(is_image(path) for inner in _folders(folder) for path in inner.iterdir())
    return list_clients(folder) if natural and not common else list_classes(folder)


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _refuse_loose(folder: Path) -> None:
    """Raise DataError for an image next to folders: it belongs to none of them, and is not skipped silently."""
    loose = sorted(path for path in folder.iterdir() if path.is_file() and is_image(path))
    if loose and _folders(folder):
        raise DataError(f"{loose[0]} is next to folders and in none of them: move it into one, or out of {folder}.")


def _split(listed: list[Listed], seed: int, folder: Path) -> tuple[list[Listed], list[Listed]]:
    """Hold out a fifth of each class, with natural clients of each client's class."""
    groups = [f"{one.client}/{one.label}" if one.client is not None else one.label for one in listed]
    names, labels = np.unique(groups, return_inverse=True)
    train, test = stratified_split(labels, len(names), 0.2, stream(seed, "image-folder/split"))
    if not len(test):
        raise DataError(f"{folder} has too few images to hold out a fifth of each class for testing: add some.")
    return [listed[position] for position in train], [listed[position] for position in test]
