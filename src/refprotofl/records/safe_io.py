"""Safe access to run folders of unknown origin: plain files and folders are used, links and pipes are refused.

The path to the folder itself is the user's own and may contain links.
"""

import json
import os
import re
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO, Literal

from refprotofl.core import DataError

FILES = ("experiment.json", "events.jsonl", "summary.json", ".lock")
CHECKPOINT = "checkpoint"

_KINDS = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}


def check_run_folder(folder: Path) -> None:
    """Raise DataError if a file of the run is a link, a pipe or the like."""
    for name in FILES:
        check_file(folder / name)
    checkpoint = folder / CHECKPOINT
    for level in [level for level in (checkpoint, checkpoint / "clients", checkpoint / "blobs") if check_folder(level)]:
        with os.scandir(level) as entries:
            odd = [Path(entry.path) for entry in entries if _is_odd(entry)]
        for path in odd:
            check_file(path)


def _is_odd(entry: os.DirEntry[str]) -> bool:
    return not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False)


def check_file(path: Path) -> bool:
    """Return whether the file exists; raise DataError if the path is something else."""
    return _check(path, stat.S_IFREG, "file")


def check_folder(path: Path) -> bool:
    """Return whether the folder exists; raise DataError if the path is something else."""
    return _check(path, stat.S_IFDIR, "folder")


def _check(path: Path, kind: int, wanted: str) -> bool:
    try:
        found = stat.S_IFMT(path.lstat().st_mode)
    except OSError:
        return False
    if found != kind:
        seen = _KINDS.get(found, "a file" if found == stat.S_IFREG else "a device")
        raise DataError(f"{path} is {seen}, which is not followed in a run folder; it must be a regular {wanted}.")
    return True


def open_file(path: Path, mode: Literal["rb", "ab"] = "rb") -> BinaryIO:
    """Open a file without following links or blocking on a pipe; raise DataError if it is not a regular file."""
    check_file(path)
    return open(path, mode, opener=_open)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o644)


def read_file(path: Path) -> bytes:
    """Return the contents; raise OSError if the file cannot be read, DataError if it is not a regular file."""
    with open_file(path) as file:
        return file.read()


def read_json(path: Path) -> Any:
    """Return the parsed file; raise ValueError if it is not JSON, else as `read_file`."""
    return parse_json(read_file(path))


def parse_json(text: bytes | str) -> Any:
    """Return parsed JSON; raise ValueError also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def remove_named(folder: Path, form: re.Pattern[str], keep: Collection[str] = ()) -> None:
    """Remove files and links with a name of this form; what a link points to stays."""
    check_folder(folder)
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    for name in names:
        if name not in keep and form.fullmatch(name):
            (folder / name).unlink()
