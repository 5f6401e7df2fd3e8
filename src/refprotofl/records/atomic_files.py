"""Atomic files: a file is either complete or absent."""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from refprotofl.core import DiskFull, InputError, MachineError
from refprotofl.records.safe_io import check_folder, remove_named

FULL = (errno.ENOSPC, errno.EDQUOT)
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
PARTS = re.compile(r"\..+\.-?\d+\.part|\.tmp\w+")  # unfinished files of ours and of safetensors


def write_whole(path: Path, data: bytes) -> None:
    """Replace `path` in one step; a crash leaves the old file or the new one, never a part."""
    put_whole(path, lambda part: _write_new(part, data), sync=True)


def _write_new(path: Path, data: bytes) -> None:
    """Write a new file, never into an existing one, which may be a link."""
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(data)


def create_file(path: Path, data: bytes, mode: int) -> None:
    """Write a new file that has its mode from the first moment; an existing one is never replaced."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
        path.chmod(mode)  # whatever the umask says
    except OSError as problem:
        raise write_error(path, problem) from None


def put_whole(path: Path, write: Callable[[Path], object], *, sync: bool) -> None:
    """Replace `path` by the file that `write` makes; without `sync` a power cut may damage it until `sync_files`."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(part)
        _close_to_others(part)
        if sync:
            _sync(part)
        part.replace(path)
        if sync:
            sync_folder(path.parent)
    except OSError as problem:
        raise write_error(path, problem) from None
    finally:
        part.unlink(missing_ok=True)


def _close_to_others(path: Path) -> None:
    """Take write permission from group and others, whatever the umask: the run is resumed from this file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OTHERS_WRITE and os.name != "nt":
        path.chmod(mode & ~OTHERS_WRITE)


def remove_parts(folder: Path) -> None:
    """Remove the unfinished files of a process that was killed."""
    remove_named(folder, PARTS)


def write_error(path: Path, problem: OSError) -> MachineError:
    """Return the error to raise when `path` could not be written."""
    if problem.errno in FULL:
        return DiskFull(path)
    return MachineError(f"Cannot write {path}: {problem.strerror or problem}.")


def sync_files(folder: Path, names: Iterable[str]) -> None:
    """Make files in `folder` survive a power cut."""
    path = folder
    try:
        for path in (folder / name for name in names):
            _sync(path)
        sync_folder(folder)
    except OSError as problem:
        raise write_error(path, problem) from None


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut, where the system supports that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path) -> list[Path]:
    """Create a writable run folder, and return the folders that did not exist before, the outermost first."""
    try:
        made = [path for path in (folder, *folder.parents) if not path.exists()][::-1]
        folder.mkdir(parents=True, exist_ok=True)
        for path in made:
            sync_folder(path.parent)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "it is not writable")
    except OSError as problem:
        if problem.errno in FULL:
            raise write_error(folder, problem) from None
        raise InputError(f"Cannot use {folder} as the run folder: {problem.strerror or problem}.") from None
    return made


def remove_empty(folders: list[Path]) -> None:
    """Remove folders, the innermost first, as far as they are empty."""
    for folder in reversed(folders):
        try:
            folder.rmdir()
        except OSError:
            return


def ensure_folder(folder: Path, *, private: bool = False) -> Path:
    """Create a folder for files of ours; a private one is accessible to its owner alone."""
    existed = check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if private and os.name != "nt":
            folder.chmod(0o700)
        if not existed:
            sync_folder(folder.parent)
    except OSError as problem:
        raise write_error(folder, problem) from None
    return folder


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
