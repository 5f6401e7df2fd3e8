"""The clients' private states, and the constant messages they were given, on their own disk."""

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from refprotofl.basics.state import Held, Kept, State, digest_state
from refprotofl.errors import RefProtoFLError
from refprotofl.records.files import sha256, write_error, write_whole
from refprotofl.records.states import load_state, map_state, save_state
from refprotofl.wire import Message, decode, encode


class ClientStore:
    """States by client, each mapped from a file of its own, so that memory does not grow with the number of clients.

    Any process may load a client and keep it: `Kept` says where the state is. What training leaves is written as a
    whole, smaller changes as such, until `settle` makes a whole of them. A client that never changed has no file.
    """

    def __init__(self, folder: Path, initial: Sequence[State]) -> None:
        self._folder = folder
        self._initial = initial

    def load(self, client: int, kept: Kept) -> Held:
        base = self.base(client, kept)
        if not kept.changes:
            return Held(base, base)
        changed, notes = map_state(self._folder / kept.changes)
        return Held({name: base[name] for name in json.loads(notes["unchanged"])} | changed, base)

    def base(self, client: int, kept: Kept) -> State:
        if not kept.file:
            return self._initial[client]
        path = self._folder / kept.file
        return map_state(path)[0] if kept.checked else load_state(path, kept.digest)

    def keep(self, client: int, round: int, state: State, held: Held, kept: Kept) -> Kept:
        """Writes what became of a state that was loaded."""
        unchanged = [name for name, value in state.items() if value is held.base.get(name)]
        changes = {name: value for name, value in state.items() if name not in set(unchanged)}
        if 2 * _bytes(changes) > _bytes(state):
            return self._write(client, round, state, kept)
        file = _file_beside(kept.changes, f"{client:06d}-{round}", "changes")
        save_state(self._folder / file, changes, {"unchanged": json.dumps(unchanged)}, sync=False)
        return replace(kept, changes=file)

    def settle(self, client: int, round: int, kept: Kept) -> Kept:
        """The state in one file, as a checkpoint has it."""
        return self._write(client, round, self.load(client, kept).state, kept) if kept.changes else kept

    def _write(self, client: int, round: int, state: State, kept: Kept) -> Kept:
        """The file is safe from a crash of this process; the checkpoint's commit makes it safe from a power cut."""
        file = _file_beside(kept.file, f"{client:06d}-{round}", "safetensors")
        save_state(self._folder / file, state, sync=False)
        return Kept(file, digest_state(state))


def _file_beside(mapped: str, name: str, ending: str) -> str:
    """Another name than that of a file which may be mapped, as not every system lets such a file be replaced."""
    file = f"{name}.{ending}"
    return f"{name}-again.{ending}" if file == mapped else file


def _bytes(state: State) -> int:
    return sum(value.nbytes for value in state.values() if isinstance(value, Tensor))


class DiskShelf:
    """Messages by the digest of their bytes; equal ones are kept once, in memory and on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._messages: dict[str, Message] = {}

    def put(self, message: Message) -> str:
        data = encode(message)
        digest = sha256(data)
        if self.get(digest) is None:
            write_whole(self._folder / digest, data)
            self._messages[digest] = message
        return digest

    def get(self, digest: str) -> Message | None:
        """None if it is not there, or no longer what it was."""
        if digest not in self._messages:
            try:
                data = (self._folder / digest).read_bytes()
                if sha256(data) != digest:
                    return None
                self._messages[digest] = decode(data)
            except (OSError, RefProtoFLError):
                return None
        return self._messages[digest]


def private_folder(folder: Path) -> Path:
    """A folder that only its owner can look into."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.name != "nt":
            folder.chmod(0o700)
    except OSError as problem:
        raise write_error(folder, problem) from None
    return folder
