"""Downloads that check what came and continue where they were cut off.

Bringing a standard set here: found on this machine, or downloaded, checked and laid out.
"""

from collections.abc import Sequence
from pathlib import Path

import pooch
import requests
from filelock import FileLock
from tqdm import tqdm
from urllib3.exceptions import HTTPError

from refprotofl.core.errors import DataError, InputError
from refprotofl.data.dataset import Dataset
from refprotofl.data.locations import DATA_VARIABLE, Place, cache_folder, find, find_below, matches, read_place
from refprotofl.data.standard import StandardSet

TIMEOUT = (10, 30)  # seconds to connect, seconds without a byte
CHUNK = 1 << 16


class ResumingDownloader:
    """A downloader for pooch that keeps what it has in `part` and asks the server for the rest."""

    def __init__(self, part: Path) -> None:
        self.part = part

    def __call__(self, url: str, output_file: str, _pooch: object, check_only: bool = False) -> None:
        have = self._have()
        # Bytes as served: a decoded body would not fit the Range nor the checksum.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            if response.status_code == 416:
                # The part is as long as the file or longer: nothing to ask for, and the checksum decides.
                self.part.replace(output_file)
                return
            response.raise_for_status()
            continues = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
            if not (response.status_code == 206 and continues):
                have = 0  # the server sends all of it
            self._append(response, have)
        self.part.replace(output_file)

    def _have(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _append(self, response: requests.Response, have: int) -> None:
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        title = self.part.name.removesuffix(".part")
        # disable=None draws no bar where nobody watches, as in a log file.
        bar = tqdm(total=total, initial=have, desc=title, unit="B", unit_scale=True, disable=None, leave=False)
        with self.part.open("ab" if have else "wb") as file, bar:
            try:
                for chunk in response.raw.stream(CHUNK, decode_content=False):
                    file.write(chunk)
                    bar.update(len(chunk))
            except HTTPError as error:
                raise requests.ConnectionError(f"the connection broke off after {file.tell():,} bytes") from error
        if total is not None and self._have() != total:
            raise requests.ConnectionError(f"the connection ended after {self._have():,} of {total:,} bytes")


def download(urls: Sequence[str], checksum: str, folder: Path, hint: str) -> Path:
    """The file at the first of the mirrors `urls` that serves it with the right checksum, put into `folder`.

    It appears under its name only when whole and checked; `hint` tells what to do when no mirror works.
    """
    name = urls[0].rsplit("/", 1)[-1]
    failures = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):  # one process at a time; it falls with the process that holds it
            for url in urls:
                try:
                    return _from_mirror(url, name, checksum, folder)
                except (requests.RequestException, ValueError) as error:  # pooch calls a wrong checksum ValueError
                    failures.append(f"{url}: {_reason(error)}")
    except OSError as error:
        raise DataError(f"{name} cannot be stored in {folder}: {error.strerror or error}.") from None
    raise DataError(f"{name} could not be downloaded. " + "; ".join(failures) + f". {hint}")


def _from_mirror(url: str, name: str, checksum: str, folder: Path) -> Path:
    part = folder / f"{name}.part"
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            downloader = ResumingDownloader(part)
            return Path(pooch.retrieve(url, checksum, fname=name, path=folder, downloader=downloader))
        except requests.ConnectionError:
            # A link that drops is asked again as long as it brings something.
            if not part.exists() or part.stat().st_size <= before:
                raise
        except ValueError:
            # The wrong checksum may come from an old part, which is gone now: once more from the start.
            if not before or part.exists():
                raise


def _reason(error: Exception) -> str:
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code}"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError):
        text = str(error)
        return text if text.startswith("the connection") else "no connection"
    if isinstance(error, requests.RequestException):
        return str(error)
    return "the file does not have its known checksum"


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
