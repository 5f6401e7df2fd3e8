"""The data sets on this machine, for `refprotofl data list`, `fetch` and `check`."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from refprotofl.core import DataError, InputError
from refprotofl.data.dataset import Dataset
from refprotofl.data.loading import NAMES, load_dataset
from refprotofl.data.locations import cache_folder, copy_set, download_set, find, find_below, wrong_files
from refprotofl.data.reading import AS_IT_COMES, Reading
from refprotofl.data.standard import STANDARD

NOT_HERE = "not here"


@dataclass(frozen=True)
class Listing:
    """One line of `data list`."""

    name: str
    where: str  # a path, or NOT_HERE
    size: int  # bytes on this machine; bytes to download where it is not here
    images: int
    classes: int
    source: str


@dataclass(frozen=True)
class Checked:
    """The result of `data check`; a broken set is a DataError instead."""

    name: str
    where: str
    train_inputs: int
    test_inputs: int
    kind: str
    shape: tuple[int, ...]  # channels, height, width
    class_names: tuple[str, ...]
    train_counts: tuple[int, ...]  # of each class
    test_counts: tuple[int, ...]
    verified: tuple[str, ...]  # files with their published contents
    unverified: tuple[str, ...]  # readable files whose contents are not the published ones
    clients: dict[str, int]  # training images by client, where the set has clients
    notes: tuple[str, ...]


def list_datasets(data_dir: Path | None) -> list[Listing]:
    rows = [Listing("digits", "in scikit-learn", 0, 1797, 10, "scikit-learn")]
    for known in STANDARD.values():
        place = find(known, data_dir)
        rows.append(
            Listing(
                name=known.name,
                where=str(place.path) if place else NOT_HERE,
                size=place.size if place else known.download_bytes,
                images=known.images,
                classes=len(known.class_names),
                source=known.mirrors[0],
            )
        )
    return rows


def fetch(name: str, data_dir: Path | None) -> str:
    """Return the location of a standard set, and copy it to `data_dir` if that is given.

    A set that is not on this machine is downloaded, into `data_dir` or the cache.
    """
    if name == "digits":
        return "in scikit-learn"
    if name not in STANDARD:
        raise InputError(f"{name!r} cannot be fetched. Choose one of {', '.join(NAMES)}.")
    known, root = STANDARD[name], None if data_dir is None else data_dir.expanduser()
    place = find(known, None) if root is None else find_below(known, root)
    if place is not None:
        if wrong := wrong_files(known, place):
            raise DataError(
                f"{place.path}: the contents of {', '.join(wrong)} are not the published ones. "
                "Delete these files and fetch again."
            )
        return str(place.path)
    elsewhere = None if root is None else find(known, None)
    if root is not None and elsewhere is not None and not wrong_files(known, elsewhere):
        return str(copy_set(known, elsewhere, root).path)
    return str(download_set(known, root or cache_folder()).path)


def check(name: str, data_dir: Path | None, seed: int = 0, reading: Reading = AS_IT_COMES) -> Checked:
    """Read a whole data set that is on this machine; nothing is downloaded."""
    where, verified, unverified = name, [], []
    if name in STANDARD:
        known = STANDARD[name]
        place = find(known, data_dir)
        if place is None:
            raise DataError(f"{name} is not here: get it with refprotofl data fetch {name}.")
        where = str(place.path)
        unverified = wrong_files(known, place)
        verified = [file for file in known.contents if file not in unverified]
    return _described(name, where, load_dataset(name, data_dir, seed, reading), verified, unverified)


def _described(name: str, where: str, dataset: Dataset, verified: list[str], unverified: list[str]) -> Checked:
    def counts(labels: np.ndarray) -> tuple[int, ...]:
        return tuple(int(count) for count in np.bincount(labels, minlength=dataset.num_classes))

    return Checked(
        name=name,
        where=where,
        train_inputs=len(dataset.train_inputs),
        test_inputs=len(dataset.test_inputs),
        kind=dataset.kind,
        shape=dataset.shape,
        class_names=dataset.class_names,
        train_counts=counts(dataset.train_labels),
        test_counts=counts(dataset.test_labels),
        verified=tuple(verified),
        unverified=tuple(unverified),
        clients=_owned(dataset),
        notes=dataset.notes,
    )


def _owned(dataset: Dataset) -> dict[str, int]:
    if dataset.train_owners is None:
        return {}
    return dict(zip(dataset.client_names, np.bincount(dataset.train_owners).tolist(), strict=True))
