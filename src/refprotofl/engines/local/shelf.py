"""The constant messages that the clients of this machine were given."""

from pathlib import Path

from refprotofl.errors import RefProtoFLError
from refprotofl.records.files import ensure_folder, remove_parts, sha256, write_whole
from refprotofl.wire import Message, decode, encode

SHELF = "shelf"


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
            try:
                data = (self.folder / digest).read_bytes()
                if sha256(data) != digest:
                    return None
                self._messages[digest] = decode(data)
            except (OSError, RefProtoFLError):
                return None
        return self._messages[digest]
