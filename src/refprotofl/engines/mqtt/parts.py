"""Payloads that cross in parts: fetched by their receiver, so that it sets the pace and resumes after a break."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from refprotofl.deploy.transport import Unreadable
from refprotofl.engines.mqtt.frames import PART, Announced, Part, Want, announce
from refprotofl.records import ensure_folder, write_whole
from refprotofl.records.atomic_files import write_error

WINDOW = 16  # parts that are asked for and have not arrived
STALLED = 20.0  # seconds without a part after which those that are missing are asked for again


class Sink(Protocol):
    """Holds a payload's parts from the first to the last one that is there."""

    def size(self) -> int: ...

    def append(self, data: bytes) -> None: ...

    def whole(self) -> bytes: ...


class MemorySink:
    def __init__(self) -> None:
        self._data = bytearray()

    def size(self) -> int:
        return len(self._data)

    def append(self, data: bytes) -> None:
        self._data += data

    def whole(self) -> bytes:
        return bytes(self._data)


class FileSink:
    """On disk, so that a process that starts again has what came before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = path.stat().st_size // PART * PART if path.exists() else 0

    def size(self) -> int:
        return self._size

    def append(self, data: bytes) -> None:
        try:
            with self._path.open("r+b" if self._path.exists() else "w+b") as file:
                file.truncate(self._size)
                file.seek(self._size)
                file.write(data)
        except OSError as problem:
            raise write_error(self._path, problem) from None
        self._size += len(data)

    def whole(self) -> bytes:
        return self._path.read_bytes()


class Incoming:
    """A payload that is being received. Parts may arrive twice, late or in another order."""

    def __init__(self, what: Announced, sink: Sink, session: bytes, clock: Callable[[], float]) -> None:
        self.what = what
        self._session = session
        self._sink = sink
        self._clock = clock
        self._ahead: dict[int, bytes] = {}
        self._asked = 0  # parts before this one are asked for
        self._moved = clock()

    @property
    def _next(self) -> int:
        return -(-self._sink.size() // PART)

    @property
    def complete(self) -> bool:
        return self._sink.size() >= self.what.size

    @property
    def stalled(self) -> bool:
        return self._clock() - self._moved > STALLED

    def begin(self) -> Want | None:
        """Return what to ask for from the first missing part on; None if nothing is missing."""
        self._moved, self._asked = self._clock(), self._next
        return self._want(WINDOW)

    def take(self, part: Part) -> Want | None:
        """Take a part; return what to ask for next, if anything. Parts that were not asked for are ignored."""
        number = part.number
        if not self._next <= number < self._asked or len(part.data) != self._length(number):
            return None
        self._moved = self._clock()
        self._ahead[number] = part.data
        while not self.complete and (data := self._ahead.pop(self._next, None)) is not None:
            self._sink.append(data)
        return self._want(WINDOW // 2) if self._asked - self._next <= WINDOW // 2 else None

    def whole(self) -> bytes:
        """Return the payload; raise Unreadable if it is not the one that was announced."""
        data = self._sink.whole()
        if announce(data) != self.what:
            raise Unreadable("its payload does not have the digest that was announced")
        return data

    def _length(self, number: int) -> int:
        return min(PART, self.what.size - PART * number)

    def _want(self, most: int) -> Want | None:
        count = min(most, self.what.parts - self._asked)
        if count <= 0:
            return None
        first, self._asked = self._asked, self._asked + count
        return Want(self._session, self.what.key, first, count)


def parts_of(payload: bytes, want: Want) -> Iterator[Part]:
    """Yield the parts that were asked for, at most a window of them."""
    last = min(want.first + min(want.count, WINDOW), -(-len(payload) // PART))
    for number in range(want.first, last):
        yield Part(want.key, number, payload[PART * number : PART * (number + 1)])


class ContentStore:
    """Payloads that a node has received, by digest: the same is not sent to it again."""

    def __init__(self, folder: Path, most: int = 200_000_000) -> None:
        self._folder = folder
        self._most = most  # bytes in all
        ensure_folder(folder.parent, private=True)
        ensure_folder(folder, private=True)

    def find(self, what: Announced) -> bytes | None:
        with suppress(OSError):
            path = self._path(what)
            data = path.read_bytes()
            if announce(data) == what:
                path.touch()
                return data
        return None

    def sink(self, what: Announced) -> FileSink:
        return FileSink(self._path(what).with_suffix(".part"))

    def put(self, what: Announced, data: bytes) -> None:
        """Keep a payload; of the others, keep those that were used last."""
        write_whole(self._path(what), data)
        self.forget(what)
        self._shrink()

    def forget(self, what: Announced) -> None:
        """Remove the parts of a payload."""
        self._path(what).with_suffix(".part").unlink(missing_ok=True)

    def _shrink(self) -> None:
        found = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        total = 0
        for path in found:
            total += path.stat().st_size
            if total > self._most:
                path.unlink(missing_ok=True)

    def _path(self, what: Announced) -> Path:
        return self._folder / what.digest.hex()


class Offered:
    """Payloads that others may fetch from here; the oldest are forgotten beyond `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._payloads: OrderedDict[bytes, bytes] = OrderedDict()

    def add(self, payload: bytes) -> Announced:
        what = announce(payload)
        self._payloads[what.key] = payload
        self._payloads.move_to_end(what.key)
        while len(self._payloads) > self._most:
            self._payloads.popitem(last=False)
        return what

    def get(self, key: bytes) -> bytes | None:
        return self._payloads.get(key)
