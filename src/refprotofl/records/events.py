"""events.jsonl: what happened, line by line, each line chained to those before it.

`chain` of a line is the SHA-256 over the chain before it and the line without its `chain`. It starts with the SHA-256
of all that stands before the first such line: of nothing, or of what an older version wrote.
"""

import json
import os
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from refprotofl.core.errors import DataError, InputError
from refprotofl.records.files import sha256, sync_folder, write_error
from refprotofl.records.safe_io import CHECKPOINT, open_file, parse_json, read_file

Event = dict[str, Any]


class EventLog:
    """Whoever goes on with a run mends it first; then it grows, and is never read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._head = sha256(b"")
        self._size = 0

    def chained(self, events: Sequence[Event]) -> list[Event]:
        """The events as the next lines; nothing is written yet."""
        lines, head = [], self._head
        for event in events:
            head = _link(head, event)
            lines.append({**event, "chain": head})
        return lines

    def size_with(self, lines: Sequence[Event]) -> int:
        """Of the file once these lines, which were chained before, are in it."""
        return self._size + len(as_text(lines))

    def append(self, lines: Sequence[Event]) -> None:
        """Lines that were chained before, so that a manifest can hold the very same."""
        text = as_text(lines)
        try:
            with open_file(self.path, "ab") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if not self._size:
                sync_folder(self.path.parent)  # the file may be new
        except OSError as problem:
            raise write_error(self.path, problem) from None
        self._head = lines[-1]["chain"]
        self._size += len(text)

    def tell(self, event: Event) -> None:
        self.append(self.chained([event]))

    def mend(self, committed: int, lines: Sequence[Event], size: int | None) -> list[Event]:
        """After a crash: what the last committed round had to tell is there once, and nothing of a later round is.

        `lines` are the round's own, which the manifest holds; `size` is the file's with them in it, None in a manifest
        of an older version. Only what follows is read, however long the run. Gives what was told since that round.

        DataError if the lines before are not those that the manifest goes with: such a file is left as it is.
        """
        text = as_text(lines)
        start = self._find(committed) if size is None else size - len(text)
        tail = self._read_from(start)
        if lines:
            self._check_before(start, lines[0])
        since = _told_since(tail[len(text) :], committed) if tail.startswith(text) else []
        if not lines and any(event["event"] == "round" for event in whole_lines(tail)):
            raise DataError(
                f"{self.path} tells of committed rounds, but there is no manifest in {CHECKPOINT}: it was removed. "
                "Bring it back, or use another --out."
            )
        kept = text + as_text(since)
        if tail != kept:
            self._replace_from(start, kept)
        self._size = start + len(kept)
        last = [*lines, *since][-1:]
        self._head = str(last[0].get("chain") or sha256(read_file(self.path))) if last else sha256(b"")
        return since

    def later(self, size: int) -> bytes:
        """The whole lines after the first `size` bytes; none where there are not as many."""
        try:
            with open_file(self.path) as file:
                file.seek(size)
                tail = file.read()
        except FileNotFoundError:
            return b""
        return tail[: tail.rfind(b"\n") + 1]

    def _read_from(self, start: int) -> bytes:
        try:
            with open_file(self.path) as file:
                if os.fstat(file.fileno()).st_size < start:
                    raise DataError(
                        f"{self.path} is shorter than the checkpoint's manifest knows it: it was truncated. Bring back "
                        "the whole file, or use another --out."
                    )
                file.seek(start)
                return file.read()
        except FileNotFoundError:
            if start == 0:
                return b""
            raise DataError(f"{self.path} is missing; the checkpoint's manifest goes with it.") from None

    def _check_before(self, start: int, line: Event) -> None:
        """The line, which is the manifest's, follows from what stands before it."""
        before = self._last_line(start)
        if before is None:
            head: object = sha256(b"")
        else:
            head = before.get("chain")
            if head is None:  # lines of an older version
                with open_file(self.path) as file:
                    head = sha256(file.read(start))
        if "chain" in line and _link(str(head), line) != line["chain"]:
            raise self._not_ours()

    def _last_line(self, end: int) -> Event | None:
        """The line that ends at byte `end`."""
        if end == 0:
            return None
        length = 1 << 16
        while True:
            begin = max(0, end - length)
            with open_file(self.path) as file:
                file.seek(begin)
                part = file.read(end - begin)
            cut = part.rfind(b"\n", 0, -1)
            if cut >= 0 or begin == 0:
                try:
                    if part.endswith(b"\n"):
                        return _event(part[cut + 1 :])
                except ValueError:
                    pass
                raise self._not_ours()
            length *= 4

    def _not_ours(self) -> DataError:
        return DataError(
            f"{self.path} is not the one that the checkpoint's manifest goes with: a line was changed, added or "
            "removed, or one of the two is another run's. Bring back what belongs together, or use another --out."
        )

    def _find(self, committed: int) -> int:
        """Where the lines of the last committed round begin, or would: of a run that an older version wrote."""
        start, rounds = 0, 0
        try:
            for line in self._read_from(0).splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    break
                event = _event(line)
                if event.get("round", 0) >= committed > 0:
                    break
                rounds += event["event"] == "round"
                start += len(line)
        except ValueError:
            raise DataError(f"{self.path} has a damaged line before its last one; remove that line to go on.") from None
        if rounds < committed - 1:
            raise DataError(f"{self.path} tells of {rounds} rounds before round {committed}: it was truncated.")
        return start if committed else 0

    def _replace_from(self, start: int, text: bytes) -> None:
        """What stands before `start` is not touched: a crash in between leaves what can be mended again."""
        try:
            with open_file(self.path, "ab") as file:
                file.truncate(start)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self.path.parent)
        except OSError as problem:
            raise write_error(self.path, problem) from None


def as_text(lines: Sequence[Event]) -> bytes:
    """As they stand in the file."""
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def whole_lines(text: bytes) -> Iterator[Event]:
    """Up to the first that is no event."""
    for line in text[: text.rfind(b"\n") + 1].splitlines():
        try:
            yield _event(line)
        except ValueError:
            return


def _told_since(text: bytes, committed: int) -> list[Event]:
    """What was told after a committed round, up to its end or to a round that was not committed."""

    def goes_on(event: Event) -> bool:
        return event["event"] != "end" and int(event.get("round", 0)) <= committed

    return list(takewhile(goes_on, whole_lines(text)))


def read_events(folder: Path) -> list[Event]:
    path = folder / "events.jsonl"
    try:
        return [_event(line) for line in read_file(path).splitlines()]
    except OSError:
        raise InputError(f"{folder} is not a run folder: it has no events.jsonl.") from None
    except ValueError:
        raise DataError(f"{path} has a damaged line; a run that was cut off is mended by --resume.") from None


def check_chain(folder: Path, events: Sequence[Event]) -> int:
    """The number of chained lines; DataError at the first that does not follow from those before it."""
    first = next((number for number, event in enumerate(events) if "chain" in event), len(events))
    head = sha256("".join(f"{json.dumps(event)}\n" for event in events[:first]).encode())
    for number, event in enumerate(events[first:], first + 1):
        head = _link(head, event)
        if event.get("chain") != head:
            raise DataError(
                f"{folder / 'events.jsonl'}: line {number} does not follow from the lines before it; "
                "one of them was changed, added or removed."
            )
    return len(events) - first


def _link(head: str, event: Event) -> str:
    bare = {name: value for name, value in event.items() if name != "chain"}
    return sha256(f"{head}{json.dumps(bare)}".encode())


def _event(line: bytes) -> Event:
    """ValueError if the line is no event."""
    event = parse_json(line)
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise ValueError("it is no event")
    if type(event.get("round", 0)) is not int:
        raise ValueError("its round is no number")
    return event
