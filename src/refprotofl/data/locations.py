"""Locations of standard sets on this machine, and the contents of their files, however they are packed."""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from refprotofl.core import DataError, InputError
from refprotofl.data.dataset import Dataset
from refprotofl.data.standard import STANDARD, StandardSet

DATA_VARIABLE = "REFPROTOFL_DATA"
LARGEST = 1 << 28  # bytes of one unpacked file: more than any known set's, but no bomb
LARGEST_ARCHIVE = 1 << 29  # bytes of a whole unpacked archive


@dataclass(frozen=True)
class Place:
    """A folder with all files of a set, or the archive that they were published in."""

    path: Path
    files: dict[str, Path]  # content name -> the file that holds it

    @property
    def size(self) -> int:
        return sum(file.stat().st_size for file in set(self.files.values()))


def cache_folder() -> Path:
    return Path(platformdirs.user_cache_dir("refprotofl"))


def data_folders(data_dir: Path | None) -> list[Path]:
    """Return the folders to search, in order: the given one, the environment's, the user's cache."""
    named = os.environ.get(DATA_VARIABLE)
    folders = [data_dir, Path(named) if named else None, cache_folder()]
    return [folder.expanduser() for folder in folders if folder is not None]


def find(known: StandardSet, data_dir: Path | None) -> Place | None:
    return next(_places(known, data_dir), None)


def find_below(known: StandardSet, root: Path) -> Place | None:
    """Find a set in this data folder alone."""
    return next(_below(known, root.expanduser()), None)


def _places(known: StandardSet, data_dir: Path | None) -> Iterator[Place]:
    for root in data_folders(data_dir):
        yield from _below(known, root)
    for packaged in known.elsewhere:
        yield from _in_folder(known, Path(packaged))


def _below(known: StandardSet, root: Path) -> Iterator[Place]:
    for folder in known.folders:
        yield from _in_folder(known, root / folder)
    for place in _in_folder(known, root):
        if not _is_another_set(known, place):
            yield place
    if known.archive and (archive := root / known.archive).is_file():
        yield Place(archive, dict.fromkeys(known.contents, archive))


def _in_folder(known: StandardSet, folder: Path) -> Iterator[Place]:
    files = {}
    for name in known.contents:
        candidates = [folder / name, folder / f"{name}.gz"]
        found = next((file for file in candidates if file.is_file()), None)
        if found is None:
            return
        files[name] = found
    yield Place(folder, files)


def _is_another_set(known: StandardSet, place: Place) -> bool:
    """Return True if the files are those of another set: MNIST and Fashion-MNIST use the same file names."""
    name = min(known.contents, key=lambda content: place.files[content].stat().st_size)
    content = read(place.files[name])
    return any(
        name in other.contents and matches(content, other.contents[name])
        for other in STANDARD.values()
        if other is not known
    )


def read(file: Path) -> bytes:
    """Return a file's bytes, decompressed if it is a .gz file."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            content = stream.read(LARGEST + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{file} is truncated or corrupt ({error}): delete it and fetch it again.") from None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from None
    _refuse_larger(len(content), str(file))
    return content


def _refuse_larger(length: int, origin: str) -> None:
    if length > LARGEST:
        raise DataError(f"{origin} is larger than any file of a known set: delete it and fetch it again.")


def read_place(known: StandardSet, place: Place) -> dict[str, bytes]:
    """Return all contents of a set. Archives are read, never unpacked, so no path in them is ever followed."""
    if place.path.is_dir():
        return {name: read(file) for name, file in place.files.items()}
    contents = _read_archive(place.path, set(known.contents))
    if missing := sorted(known.contents.keys() - contents.keys()):
        raise DataError(f"{place.path} lacks {', '.join(missing)}: is it the binary version of {known.name}?")
    return contents


def _read_archive(archive: Path, wanted: set[str]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    try:
        with gzip.open(archive) as packed, tarfile.open(mode="r|", fileobj=_Bounded(packed, archive)) as tar:
            for member in tar:
                name = Path(member.name).name
                if member.isfile() and name in wanted and (stream := tar.extractfile(member)):
                    _refuse_larger(member.size, f"{archive} ({name})")
                    contents[name] = stream.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(f"{archive} is truncated or corrupt ({error}): delete it and fetch it again.") from None
    return contents


class _Bounded(io.RawIOBase):
    """A stream that limits decompression: headers of an archive, too, may claim any size."""

    def __init__(self, stream: gzip.GzipFile, origin: Path) -> None:
        self._stream = stream
        self._origin = origin
        self._left = LARGEST_ARCHIVE

    def read(self, size: int = -1) -> bytes:
        found = self._stream.read(self._left + 1 if size < 0 else min(size, self._left + 1))
        self._left -= len(found)
        if self._left < 0:
            raise DataError(
                f"{self._origin} unpacks to more than any known set: delete it and fetch it again, or unpack it "
                "yourself."
            )
        return found


def matches(content: bytes, checksum: str) -> bool:
    """Return True if bytes have a checksum written as 'sha256:…'."""
    algorithm, _, digest = checksum.partition(":")
    return hashlib.new(algorithm, content, usedforsecurity=False).hexdigest() == digest


def load_standard(known: StandardSet, data_dir: Path | None) -> Dataset:
    if data_dir is not None and not data_dir.is_dir():
        raise InputError(f"--data {data_dir}: folder not found.")
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
    """Download a set below `root`; an interrupted download is resumed."""
    # Most runs find their data here and need not import the network's libraries.
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
        # Unpacked once, so that not every start has to decompress it.
        archive = root / known.archive
        copy_set(known, Place(archive, dict.fromkeys(known.contents, archive)), root)
        archive.unlink()
    place = find_below(known, root)
    assert place is not None, f"{known.name} is not where it was downloaded to"
    return place


def copy_set(known: StandardSet, place: Place, root: Path) -> Place:
    """Copy the set's files to a folder below `root`; each appears under its name only when complete."""
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
    """Return the files whose contents are not the published ones."""
    contents = read_place(known, place)
    return [name for name, checksum in known.contents.items() if not matches(contents[name], checksum)]
