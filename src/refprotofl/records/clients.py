"""The clients' private states, and the constant messages they were given, on their own disk."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refprotofl.errors import RefProtoFLError
from refprotofl.records.files import sha256, write_error, write_whole
from refprotofl.records.states import load_state, save_state
from refprotofl.state import State, digest_state
from refprotofl.wire import Message, decode, encode


class ClientStore:
    """States by client. A client that never changed has its initial state and no file."""

    def __init__(self, folder: Path, initial: Sequence[State], records: Mapping[int, Mapping[str, Any]]) -> None:
        self._folder = folder
        self._initial = initial
        self._records = records
        self._states: dict[int, State] = {}
        self._dirty: set[int] = set()

    def load(self, client: int) -> State:
        if client not in self._states:
            if client not in self._records:
                return self._initial[client]
            record = self._records[client]
            self._states[client] = load_state(self._folder / record["file"], record["sha256"])
        return self._states[client]

    def keep(self, client: int, state: State) -> None:
        self._states[client] = state
        self._dirty.add(client)

    def commit(self, round: int) -> dict[int, dict[str, Any]]:
        written = {}
        for client in sorted(self._dirty):
            state = self._states[client]
            file = f"{client:06d}-{round}.safetensors"
            written[client] = {
                "file": file,
                "sha256": save_state(self._folder / file, state),
                "digest": digest_state(state),
            }
        self._dirty.clear()
        return written


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
