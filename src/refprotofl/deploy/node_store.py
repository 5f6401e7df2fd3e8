"""A node's store on disk: for each run its experiment, the client's states by digest, and the last answer.

It can be read without Flower, so that a device can use its own model.
"""

import json
import os
import re
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refprotofl.core import DataError, RefProtoFLError, digest_state
from refprotofl.engines import ClientLogs, ClientStore, Location, prepare_blobs, prepare_states
from refprotofl.engines.local.store import CLIENTS
from refprotofl.experiment import Experiment
from refprotofl.records import (
    check_folder,
    ensure_folder,
    parse_json,
    read_file,
    read_json,
    remove_parts,
    sha256,
    sync_files,
    write_whole,
)
from refprotofl.records.atomic_files import PARTS
from refprotofl.records.safe_io import CHECKPOINT, remove_named

if TYPE_CHECKING:
    from refprotofl.deploy.transport import Envelope

RUNS = "runs"
EXPERIMENT, TEST, NEWEST, LAST = "experiment.json", "test-set", "newest", "last-answer"
Sent = list[tuple[int, int]]  # by phase: the bytes of a round's answers

_RUN = re.compile(r"[0-9a-f]{32}")
_STATES = re.compile(rf"\d{{6,9}}-\d{{1,9}}(-again)?\.(safetensors|changes)|{PARTS.pattern}")


@dataclass(frozen=True, eq=False)
class Assignment:
    """The client that a node is in a run, and the experiment."""

    client: int
    experiment: Experiment
    digest: str  # of both


class NodeStore:
    """One run on a node. Everything is synced to disk before an answer is sent.

    States are found by their digests; each request of the server names the one to start from.
    """

    def __init__(self, root: Path, run: str) -> None:
        if not _RUN.fullmatch(run):
            raise DataError(f"{run!r} is not a run id.")
        self.folder = root / RUNS / run
        self.states = self.folder / CHECKPOINT
        self._index = self.folder / "states.json"

    def prepare(self) -> None:
        """Create the folders, readable by their owner only."""
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
            ensure_folder(folder, private=True)
        remove_parts(self.folder)
        ensure_folder(self.states, private=True)
        prepare_states(self.states)
        prepare_blobs(self.states)

    @property
    def used(self) -> float:
        """The time of the last write."""
        times = [0.0]
        for name in (EXPERIMENT, self._index.name, LAST):
            with suppress(OSError):
                times.append((self.folder / name).lstat().st_mtime)
        return max(times)

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

    @property
    def assignment(self) -> Assignment | None:
        """The stored assignment; None if there is none or it is damaged, so that the server sends it again."""
        try:
            data = read_file(self.folder / EXPERIMENT)
            known = parse_json(data)
            return Assignment(int(known["client"]), Experiment.parse(known["experiment"]), sha256(data))
        except (OSError, ValueError, LookupError, TypeError, RefProtoFLError):
            return None

    def take(self, client: int, experiment: Experiment, test: bytes) -> None:
        """Store the assignment and the test set of a run."""
        self.prepare()
        self.write(EXPERIMENT, json.dumps({"client": client, "experiment": experiment.carried()}).encode())
        self.write(TEST, test)

    def find(self, digest: str, states: ClientStore, client: int) -> Location | None:
        """Return the location of the state with this digest; None if it is missing or damaged."""
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
        """Return the stored states by digest, the newest last."""
        try:
            found = {digest: Location(**where) for digest, where in read_json(self._index).items()}
            return {digest: where for digest, where in found.items() if _is_ours(where)}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def put(self, digest: str, location: Location, retain: Collection[str]) -> None:
        """Store a state; of the others keep only those in `retain`."""
        sync_files(self.states / CLIENTS, filter(None, (location.file, location.changes)))
        held = {one: where for one, where in self.held().items() if one in retain and one != digest}
        held[digest] = location
        self.write("states.json", json.dumps({one: asdict(where) for one, where in held.items()}).encode())
        named = {name for where in held.values() for name in (where.file, where.changes) if name}
        remove_named(self.states / CLIENTS, _STATES, named)

    def keep_newest(self, state: str, round: int, shared: bytes) -> None:
        """Store the shared part that this state was last evaluated with; together they are the device's model."""
        self._write_headed(NEWEST, {"state": state, "round": round}, shared)

    def newest(self) -> tuple[str, int, bytes] | None:
        """Return digest, round and shared part as stored by `keep_newest`."""
        try:
            head, shared = self._read_headed(NEWEST)
            return str(head["state"]), int(head["round"]), shared
        except (ValueError, LookupError, TypeError):
            return None

    def remember(self, key: str, envelope: "Envelope", sent: Sent) -> None:
        """Store the last answer, for a server that asks again, and the sizes `sent` in its round, itself included."""
        self._write_headed(LAST, {"key": key, "header": dict(envelope.header), "sent": sent}, envelope.payload)

    def sent(self, round: int, before: int) -> Sent:
        """Return the sizes of the answers in this round before this phase."""
        try:
            head, _ = self._read_headed(LAST)
            sizes = head["sent"] if head["header"]["round"] == round else []
            return [(int(phase), int(size)) for phase, size in sizes if phase < before]
        except (ValueError, LookupError, TypeError):
            return []

    def remembered(self, key: str) -> "Envelope | None":
        from refprotofl.deploy.transport import Envelope

        try:
            head, payload = self._read_headed(LAST)
            return Envelope(head["header"], payload) if head["key"] == key else None
        except (ValueError, LookupError, TypeError):
            return None

    def _write_headed(self, name: str, head: dict[str, Any], data: bytes) -> None:
        encoded = json.dumps(head).encode()
        self.write(name, len(encoded).to_bytes(4, "little") + encoded + data)

    def _read_headed(self, name: str) -> tuple[dict[str, Any], bytes]:
        """Return head and data; raise ValueError if they are missing or damaged."""
        data = self.read(name) or b""
        end = 4 + int.from_bytes(data[:4], "little")
        return json.loads(data[4:end]), data[end:]


def _is_ours(location: Location) -> bool:
    """Return whether the names are plain names of state files."""
    return all(_STATES.fullmatch(name) for name in (location.file, location.changes) if name)


def runs_in(root: Path) -> list[NodeStore]:
    """Return the runs of a node's store, the most recently used first."""
    if not check_folder(root / RUNS):
        return []
    with os.scandir(root / RUNS) as entries:
        names = [entry.name for entry in entries if _RUN.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)]
    return sorted((NodeStore(root, name) for name in names), key=lambda one: (one.used, one.folder.name), reverse=True)


def remove_old(root: Path, most: int) -> None:
    """Keep the most recently used runs; a node that resumes another one has to join it again."""
    for one in runs_in(root)[most:]:
        shutil.rmtree(one.folder, ignore_errors=True)
