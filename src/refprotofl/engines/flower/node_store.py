"""A node's disk: for each run its experiment, the client's states by digest, and the last answer that it gave."""

import json
import re
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

from refprotofl.basics.state import digest_state
from refprotofl.engines.flower.parcels import Parcel
from refprotofl.engines.local.logs import ClientLogs
from refprotofl.engines.local.shelf import prepare_shelf
from refprotofl.engines.local.store import CLIENTS, ClientStore, Location, prepare_states
from refprotofl.errors import DataError
from refprotofl.records.files import PARTS, ensure_folder, remove_parts, sync_files, write_whole
from refprotofl.records.inside import CHECKPOINT, read_file, read_json, remove_named

RUNS = "runs"
_RUN = re.compile(r"[0-9a-f]{32}")
_STATES = re.compile(rf"\d{{6,9}}-\d{{1,9}}(-again)?\.(safetensors|changes)|{PARTS.pattern}")


class NodeStore:
    """One run on a node. What is on disk when an answer leaves is there after a power cut, too.

    States are found by their digests: which of them counts is the server's to say, by what it asks to go on from.
    """

    def __init__(self, root: Path, run: str) -> None:
        if not _RUN.fullmatch(run):
            raise DataError(f"{run!r} is no id of a run.")
        self.folder = root / RUNS / run
        self.states = self.folder / CHECKPOINT
        self._index = self.folder / "states.json"
        self._last = self.folder / "last-answer"

    def prepare(self) -> None:
        """Only its owner can look into it."""
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
            ensure_folder(folder, private=True)
        remove_parts(self.folder)
        ensure_folder(self.states, private=True)
        prepare_states(self.states)
        prepare_shelf(self.states)

    @property
    def logs(self) -> ClientLogs:
        return ClientLogs(self.folder)

    def write(self, name: str, data: bytes) -> None:
        write_whole(self.folder / name, data)

    def read(self, name: str) -> bytes | None:
        try:
            return read_file(self.folder / name)
        except OSError:
            return None

    def find(self, digest: str, states: ClientStore, client: int) -> Location | None:
        """Where the state of this digest lies; None if it is not here, or no longer what it was."""
        if not digest:
            return Location()
        location = self.held().get(digest)
        try:
            if location is not None and digest_state(states.load(client, location).state) == digest:
                return location
        except (DataError, ValueError, LookupError):
            pass
        return None

    def held(self) -> dict[str, Location]:
        """By digest, the newest last."""
        try:
            return {digest: Location(**where) for digest, where in read_json(self._index).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def put(self, digest: str, location: Location, retain: Collection[str]) -> None:
        """Keeps a state, and of the others only those that are named."""
        sync_files(self.states / CLIENTS, filter(None, (location.file, location.changes)))
        held = {one: where for one, where in self.held().items() if one in retain and one != digest}
        held[digest] = location
        self.write("states.json", json.dumps({one: asdict(where) for one, where in held.items()}).encode())
        named = {name for where in held.values() for name in (where.file, where.changes) if name}
        remove_named(self.states / CLIENTS, _STATES, named)

    def remember(self, key: str, parcel: Parcel) -> None:
        """The last answer, for a server that has not got it."""
        head = json.dumps({"key": key, "header": dict(parcel.header)}).encode()
        write_whole(self._last, len(head).to_bytes(4, "little") + head + parcel.payload)

    def remembered(self, key: str) -> Parcel | None:
        data = self.read(self._last.name)
        try:
            length = int.from_bytes((data or b"")[:4], "little")
            head: dict[str, Any] = json.loads((data or b"")[4 : 4 + length])
            return Parcel(head["header"], (data or b"")[4 + length :]) if head["key"] == key else None
        except (ValueError, LookupError, TypeError):
            return None
