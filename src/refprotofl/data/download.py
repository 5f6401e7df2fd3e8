"""Downloads that verify checksums and resume where they were interrupted."""

from collections.abc import Sequence
from pathlib import Path

import pooch
import requests
from filelock import FileLock
from tqdm import tqdm
from urllib3.exceptions import HTTPError

from refprotofl.core import DataError

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
        # disable=None draws no bar where the output is not a terminal, as in a log file.
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
    """Download a file into `folder` from the first of the mirrors `urls` that serves it with the right checksum.

    It appears under its name only when complete and checked; `hint` says what to do when no mirror works.
    """
    name = urls[0].rsplit("/", 1)[-1]
    failures = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):  # one process at a time; the lock ends with its process
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
            # After a dropped connection, try again as long as there is progress.
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
