"""Bringing a standard set here: found on this machine, or downloaded, checked and laid out."""

from pathlib import Path

from refprotofl.data.dataset import Dataset
from refprotofl.data.places import DATA_VARIABLE, Place, cache_folder, find, find_below, matches, read_place
from refprotofl.data.standard import StandardSet
from refprotofl.errors import DataError, InputError


def load_standard(known: StandardSet, data_dir: Path | None) -> Dataset:
    if data_dir is not None and not data_dir.is_dir():
        raise InputError(f"--data {data_dir}: there is no such folder.")
    place = find(known, data_dir) or download_set(known, cache_folder())
    origins = {
        name: f"{file} ({name})" if file.name == known.archive else str(file) for name, file in place.files.items()
    }
    splits = known.parse(read_place(known, place), origins)
    for labels in (splits[1], splits[3]):
        if not len(labels):
            raise DataError(f"{place.path} holds no samples of {known.name}: fetch it again.")
        if labels.max() >= len(known.class_names):
            raise DataError(
                f"{place.path} is corrupt: it holds the label {labels.max()}, but {known.name} has only "
                f"the classes 0 to {len(known.class_names) - 1}. Fetch it again."
            )
    return Dataset(*splits, known.class_names, known.mean, known.std)


def download_set(known: StandardSet, root: Path) -> Place:
    """Download a set below `root`; what a broken-off attempt left there is used."""
    # Most runs find their data here and need not wait for the network's libraries.
    from refprotofl.data.download import download

    folder = root / known.folders[0]
    hint = (
        f"Without a network, copy the files of {known.name} into DIR/{known.folders[0]} and pass --data DIR, "
        f"or set {DATA_VARIABLE}=DIR."
    )
    for name, checksum in known.downloads.items():
        target = root if name == known.archive else folder
        download([mirror + name for mirror in known.mirrors], checksum, target, hint)
    if known.archive:
        # Laid out once, so that not every start has to decompress it.
        archive = root / known.archive
        copy_set(known, Place(archive, dict.fromkeys(known.contents, archive)), root)
        archive.unlink()
    place = find_below(known, root)
    assert place is not None, f"{known.name} is not where it was downloaded to"
    return place


def copy_set(known: StandardSet, place: Place, root: Path) -> Place:
    """The set's files below `root` too, each under its name only when whole."""
    folder = root / known.folders[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in read_place(known, place).items():
            part = folder / f"{name}.part"
            part.write_bytes(content)
            part.replace(folder / name)
    except OSError as error:
        raise DataError(f"{known.name} cannot be stored in {folder}: {error.strerror or error}.") from None
    return Place(folder, {name: folder / name for name in known.contents})


def wrong_files(known: StandardSet, place: Place) -> list[str]:
    """The files whose contents are not the published ones."""
    contents = read_place(known, place)
    return [name for name, checksum in known.contents.items() if not matches(contents[name], checksum)]
