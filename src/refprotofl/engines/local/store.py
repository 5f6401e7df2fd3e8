"""The clients' private states on this machine's disk, one file each by client and round, and their public sets."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from refprotofl.core import DataError, InputError, RefProtoFLError, State, digest_state
from refprotofl.engines.engine import Record
from refprotofl.records import (
    ensure_folder,
    load_state,
    map_state,
    read_file,
    remove_parts,
    save_state,
    sha256,
    sync_files,
    write_whole,
)
from refprotofl.records.atomic_files import PARTS
from refprotofl.records.safe_io import remove_named
from refprotofl.wire import Message, decode, encode

CLIENTS = "clients"

_WHOLE = re.compile(r"\d{6,9}-\d{1,9}(-again)?\.safetensors")
_OURS = re.compile(rf"{_WHOLE.pattern}|\d{{6,9}}-\d{{1,9}}(-again)?\.changes|{PARTS.pattern}")


@dataclass(frozen=True)
class Location:
    """The files of a client's newest state: one, or none for the initial state, and maybe one of changes to it."""

    file: str = ""
    digest: str = ""
    changes: str = ""
    checked: bool = True  # False: written by an earlier run, so it may no longer be what it was

    @classmethod
    def recorded(cls, record: Record) -> "Location":
        return cls(_file_of(record), record["digest"], checked=False)

    @property
    def record(self) -> Record:
        """The record of a state that is in one file."""
        return {"file": self.file, "digest": self.digest}


@dataclass(frozen=True)
class Loaded:
    """A client's state as it was loaded."""

    state: State
    base: State  # the file's own content, without the changes


class ClientStore:
    """States by client, each mapped from its own file, so that memory does not grow with the number of clients.

    Any process may load and save any client: `Location` names its files. What training leaves is written as a whole,
    smaller changes as such, until `merge` writes a whole. A client that never changed has no file.
    """

    def __init__(self, folder: Path, initial: Callable[[int], State]) -> None:
        self._folder = folder / CLIENTS
        self._initial = initial

    def load(self, client: int, location: Location) -> Loaded:
        base = self.base(client, location)
        if not location.changes:
            return Loaded(base, base)
        changed, notes = map_state(self._folder / location.changes)
        return Loaded({name: base[name] for name in json.loads(notes["unchanged"])} | changed, base)

    def base(self, client: int, location: Location) -> State:
        if not location.file:
            return self._initial(client)
        path = self._folder / location.file
        return map_state(path)[0] if location.checked else load_state(path, location.digest)

    def save(self, client: int, round: int, state: State, loaded: Loaded, location: Location) -> Location:
        """Write the new state of a client whose state was loaded."""
        unchanged = [name for name, value in state.items() if value is loaded.base.get(name)]
        changes = {name: value for name, value in state.items() if name not in set(unchanged)}
        if 2 * _bytes(changes) > _bytes(state):
            return self._write(client, round, state, location)
        file = _sibling_file(location.changes, f"{client:06d}-{round}", "changes")
        save_state(self._folder / file, changes, {"unchanged": json.dumps(unchanged)}, sync=False)
        return replace(location, changes=file)

    def merge(self, client: int, round: int, location: Location) -> Location:
        """Write the state into one file, as a record names it."""
        if not location.changes:
            return location
        return self._write(client, round, self.load(client, location).state, location)

    def _write(self, client: int, round: int, state: State, location: Location) -> Location:
        """Write a file that is safe from a crash of this process; `sync_states` makes it safe from a power cut."""
        file = _sibling_file(location.file, f"{client:06d}-{round}", "safetensors")
        save_state(self._folder / file, state, sync=False)
        return Location(file, digest_state(state))


def prepare_states(folder: Path) -> None:
    """Make the folder for states, which only its owner can read."""
    ensure_folder(folder / CLIENTS, private=True)


def read_if_here(folder: Path, record: Record) -> State | None:
    """Return the state that a record names; None if it is on a node."""
    return None if "node" in record and "file" not in record else read_state(folder, record)


def read_state(folder: Path, record: Record) -> State:
    """Return the state that a record names, which must have its digest."""
    return load_state(folder / CLIENTS / _file_of(record), record["digest"])


def check_state(folder: Path, record: Record) -> None:
    """Raise DataError if the state that a record names is damaged. States that are kept elsewhere are not checked."""
    if "file" in record:
        read_state(folder, record)


def _file_of(record: Record) -> str:
    """Return the file of a record, a name of our own form: a record may come from anyone, no other path is followed."""
    file = record.get("file")
    if file is None and "node" in record:
        raise InputError("The clients' states of this run are on the nodes of a deployment, not in its folder.")
    if not isinstance(file, str) or not _WHOLE.fullmatch(file):
        raise DataError(
            f"The checkpoint's manifest.json names {file!r} as a client's state; it must be a name such as "
            f"000000-1.safetensors in {CLIENTS}."
        )
    return file


def sync_states(folder: Path, records: Iterable[Record]) -> None:
    sync_files(folder / CLIENTS, (record["file"] for record in records))


def remove_others(folder: Path, records: Iterable[Record]) -> None:
    """Remove the files that no record names: of earlier rounds, and of a round that was not committed."""
    remove_named(folder / CLIENTS, _OURS, {record["file"] for record in records})


def _sibling_file(mapped: str, name: str, ending: str) -> str:
    """Return another name than that of a file that may be mapped: not every system lets such a file be replaced."""
    file = f"{name}.{ending}"
    return f"{name}-again.{ending}" if file == mapped else file


def _bytes(state: State) -> int:
    return sum(value.nbytes for value in state.values() if isinstance(value, Tensor))


BLOBS = "blobs"

_DIGEST = re.compile(r"[0-9a-f]{64}")


def prepare_blobs(folder: Path) -> None:
    """Make the folder for messages, and remove unfinished files of a process that was killed."""
    remove_parts(ensure_folder(folder / BLOBS, private=True))


class DiskBlobStore:
    """Messages by the digest of their bytes; equal ones are kept once, in memory and on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / BLOBS
        self._messages: dict[str, Message] = {}

    def put(self, message: Message) -> str:
        data = encode(message)
        digest = sha256(data)
        if self.get(digest) is None:
            write_whole(self.folder / digest, data)
            self._messages[digest] = message
        return digest

    def get(self, digest: str) -> Message | None:
        """Return the message; None if it is missing or damaged."""
        if digest not in self._messages:
            if not _DIGEST.fullmatch(digest):
                return None  # a client's state may come from anyone, and no other path is followed
            try:
                data = read_file(self.folder / digest)
                if sha256(data) != digest:
                    return None
                self._messages[digest] = decode(data)
            except (OSError, RefProtoFLError):
                return None
        return self._messages[digest]
