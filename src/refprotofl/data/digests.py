"""Digests of a data set's bytes. Files are hashed without being loaded, and their digests are cached."""

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from refprotofl.core import DataError
from refprotofl.data.huggingface import split_revision
from refprotofl.data.loading import locate
from refprotofl.data.locations import cache_folder, find, read_place
from refprotofl.data.standard import STANDARD, StandardSet

_COMMIT = re.compile(r"[0-9a-f]{40}")
_KEPT = 500  # cached digests
_DEPTH = 3  # folder/train/class/image
_FRESH = 2.0  # seconds in which a file may change again and keep its modification time


def digest_data(name: str, data_dir: Path | None, seen_from: Path | None = None) -> str | None:
    """Return the digest of the bytes of `dataset = name`; None if they are not here or made by a function."""
    if name == "digits":
        return "digits"
    if name in STANDARD:
        return _digest_standard(STANDARD[name], data_dir)
    if name.startswith("hf:"):
        return _revision(name.removeprefix("hf:"))
    path = locate(name, seen_from)
    try:
        if path is None:
            return None
        if path.is_dir():
            return _digest_files(_files_below(path))
        return _digest_files({path.suffix: path}) if path.is_file() else None
    except OSError as problem:
        raise DataError(f"dataset = {name!r} cannot be read: {problem.strerror or problem}.") from None


def _digest_standard(known: StandardSet, data_dir: Path | None) -> str | None:
    """Return the digest of the files' contents, however they are packed."""
    place = find(known, data_dir)
    if place is None:
        return None
    stamp = _stamp(place.files)
    remembered = _recall(stamp)
    if remembered is None:
        contents = read_place(known, place)
        remembered = _over({name: hashlib.sha256(data).hexdigest() for name, data in contents.items()})
        _remember(stamp, remembered)
    return remembered


def _revision(name: str) -> str | None:
    """Return the commit that is named, or that the hub's own cache holds; None if it is unknown."""
    repository, revision = split_revision(name)
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    try:
        refs = hub / f"datasets--{repository.replace('/', '--')}" / "refs"
        return (refs / (revision or "main")).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None


def _files_below(folder: Path) -> dict[str, Path]:
    """Return all files that are not hidden, by relative path; links are followed, as the loader does."""
    found: dict[str, Path] = {}
    for place, folders, files in os.walk(folder, followlinks=True):
        here = Path(place)
        deep = len(here.relative_to(folder).parts) + 1 >= _DEPTH
        folders[:] = [] if deep else [name for name in folders if not name.startswith(".")]
        found |= {(here / name).relative_to(folder).as_posix(): here / name for name in files if name[0] != "."}
    return {name: path for name, path in found.items() if path.is_file()}


def _digest_files(files: Mapping[str, Path]) -> str:
    stamp = _stamp(files)
    remembered = _recall(stamp)
    if remembered is None:
        remembered = _over({name: _digest_file(path) for name, path in files.items()})
        _remember(stamp, remembered)
    return remembered


def _digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _over(digests: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(f"{name}\0{digests[name]}\n" for name in sorted(digests)).encode()).hexdigest()


def _stamp(files: Mapping[str, Path]) -> str | None:
    """Return a key that changes when a file changes; None while a file is too new for that to hold."""
    total = hashlib.sha256()
    for name in sorted(files):
        found = files[name].stat()
        if time.time() - max(found.st_mtime, found.st_ctime) < _FRESH:
            return None
        seen = (name, str(files[name].absolute()), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        total.update(json.dumps(seen).encode())
    return total.hexdigest()


def _cache_file() -> Path:
    return cache_folder() / "digests.json"


def _read_cache() -> dict[str, str]:
    """Return the cached digests; a damaged cache counts as empty, and the files are hashed again."""
    try:
        known = json.loads(_cache_file().read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    whole = isinstance(known, dict) and all(isinstance(digest, str) for digest in known.values())
    return known if whole else {}


def _recall(stamp: str | None) -> str | None:
    return None if stamp is None else _read_cache().get(stamp)


def _remember(stamp: str | None, digest: str) -> None:
    if stamp is None:
        return
    known = {**_read_cache(), stamp: digest}
    part = _cache_file().with_name(f".digests.json.{os.getpid()}.part")
    with suppress(OSError):  # it costs no more than to hash again
        os.makedirs(part.parent, exist_ok=True)
        part.write_text(json.dumps(dict(list(known.items())[-_KEPT:])), encoding="utf-8")
        os.replace(part, _cache_file())
