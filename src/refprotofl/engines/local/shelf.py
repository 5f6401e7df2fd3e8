"""The constant messages that the clients of this machine were given."""

import re
from pathlib import Path

from refprotofl.errors import RefProtoFLError
from refprotofl.records.files import ensure_folder, remove_parts, sha256, write_whole
from refprotofl.records.inside import read_file
from refprotofl.wire import Message, decode, encode

SHELF = "shelf"

_DIGEST = re.compile(r"[0-9a-f]{64}")


def prepare_shelf(folder: Path) -> None:
    """What a process that was killed had begun to write goes."""
    remove_parts(ensure_folder(folder / SHELF, private=True))


class DiskShelf:
    """Messages by the digest of their bytes; equal ones are kept once, in memory and on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / SHELF
        self._messages: dict[str, Message] = {}

    def put(self, message: Message) -> str:
        data = encode(message)
        digest = sha256(data)
        if self.get(digest) is None:
            write_whole(self.folder / digest, data)
            self._messages[digest] = message
        return digest

    def get(self, digest: str) -> Message | None:
        """None if it is not there, or no longer what it was."""
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
