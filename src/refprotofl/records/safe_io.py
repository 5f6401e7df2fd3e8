"""A run folder may come from anyone: its plain files and folders are used, nothing in it that leads elsewhere.

The path to the folder is the user's own and may go through links.
"""

import json
import os
import re
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO, Literal

from refprotofl.core.errors import DataError

FILES = ("experiment.json", "events.jsonl", "summary.json", ".lock")
CHECKPOINT = "checkpoint"

_KINDS = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}


def check_run_folder(folder: Path) -> None:
    """DataError if one of a run's own names is taken by a link, a pipe or the like."""
    for name in FILES:
        check_file(folder / name)
    checkpoint = folder / CHECKPOINT
    for level in [level for level in (checkpoint, checkpoint / "clients", checkpoint / "shelf") if check_folder(level)]:
        with os.scandir(level) as entries:
            odd = [Path(entry.path) for entry in entries if _is_odd(entry)]
        for path in odd:
            check_file(path)


def _is_odd(entry: os.DirEntry[str]) -> bool:
    return not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False)


def check_file(path: Path) -> bool:
    """Whether there is a file; DataError if what is there is none."""
    return _check(path, stat.S_IFREG, "file")


def check_folder(path: Path) -> bool:
    """Whether there is a folder; DataError if what is there is none."""
    return _check(path, stat.S_IFDIR, "folder")


def _check(path: Path, kind: int, wanted: str) -> bool:
    try:
        found = stat.S_IFMT(path.lstat().st_mode)
    except OSError:
        return False
    if found != kind:
        seen = _KINDS.get(found, "a file" if found == stat.S_IFREG else "a device")
        raise DataError(f"{path} is {seen}, which is not followed in a run folder; it must be a {wanted} of its own.")
    return True


def open_file(path: Path, mode: Literal["rb", "ab"] = "rb") -> BinaryIO:
    """Follows no link, and waits for nobody at the other end of a pipe. DataError if it is no file of its own."""
    check_file(path)
    return open(path, mode, opener=_open)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o644)


def read_file(path: Path) -> bytes:
    """OSError if it cannot be read, DataError if it is no file of its own."""
    with open_file(path) as file:
        return file.read()


def read_json(path: Path) -> Any:
    """ValueError if it is not JSON; else as `read_file`."""
    return parse_json(read_file(path))


def parse_json(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def remove_named(folder: Path, form: re.Pattern[str], keep: Collection[str] = ()) -> None:
    """Removes what has a name of this form, but folders; what a link points to stays."""
    check_folder(folder)
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    for name in names:
        if name not in keep and form.fullmatch(name):
            (folder / name).unlink()
