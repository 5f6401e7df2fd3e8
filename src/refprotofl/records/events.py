"""events.jsonl: the events of a run, one JSON object per line, each chained to the line before it.

The `chain` of a line is the SHA-256 over the chain of the line before and the line without its `chain`. The first line
builds on the SHA-256 of nothing.

Entries of a `round` event for each client are stored in columns. A column with the same value for all clients is stored
as that one value, so that events stay small.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from refprotofl.core import DataError, InputError
from refprotofl.records.atomic_files import sha256, sync_folder, write_error
from refprotofl.records.safe_io import CHECKPOINT, open_file, parse_json, read_file

Event = dict[str, Any]

START = sha256(b"")  # the chain before the first line


class EventLog:
    """The open events.jsonl of a run: repaired once when the run is resumed, then only appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._head = START
        self._size = 0

    def chained(self, events: Sequence[Event]) -> list[Event]:
        """Return the events as the next lines; nothing is written yet."""
        lines, head = [], self._head
        for event in events:
            head = _link(head, event)
            lines.append({**event, "chain": head})
        return lines

    def size_with(self, lines: Sequence[Event]) -> int:
        """Return the size of the file once these chained lines are in it."""
        return self._size + len(as_text(lines))

    def append(self, lines: Sequence[Event]) -> None:
        """Append lines from `chained`, so that a manifest can hold the very same lines."""
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

    def record(self, event: Event) -> None:
        """Chain and append one event."""
        self.append(self.chained([event]))

    def repair(self, committed: int, lines: Sequence[Event], size: int) -> list[Event]:
        """Make the file end with the last committed round after a crash; return the events since that round.

        `lines` are the events of the round as the manifest holds them, and `size` is that of the file including them.
        Only what follows is read, however long the run. Raise DataError, and leave the file as it is, if the lines
        before do not belong to the manifest.
        """
        text = as_text(lines)
        start = size - len(text)
        tail = self._read_from(start)
        if lines:
            self._check_before(start, lines[0])
        since = _events_since(tail[len(text) :], committed) if tail.startswith(text) else []
        if not lines and any(event["event"] == "round" for event in whole_lines(tail)):
            raise DataError(
                f"{self.path} has committed rounds, but there is no manifest in {CHECKPOINT}: it was removed. "
                "Restore it, or use another --out."
            )
        kept = text + as_text(since)
        if tail != kept:
            self._replace_from(start, kept)
        self._size = start + len(kept)
        last = [*lines, *since][-1:]
        self._head = str(last[0].get("chain")) if last else START
        return since

    def later(self, size: int) -> bytes:
        """Return the complete lines after the first `size` bytes; none where the file is shorter."""
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
                        f"{self.path} is shorter than the checkpoint's manifest records: it was truncated. Restore "
                        "the whole file, or use another --out."
                    )
                file.seek(start)
                return file.read()
        except FileNotFoundError:
            if start == 0:
                return b""
            raise DataError(f"{self.path} is missing, but the checkpoint's manifest refers to it.") from None

    def _check_before(self, start: int, line: Event) -> None:
        """Raise DataError unless the line, which is the manifest's, follows from the line before it."""
        before = self._last_line(start)
        head = START if before is None else before.get("chain")
        if _link(str(head), line) != line.get("chain"):
            raise self._mismatch()

    def _last_line(self, end: int) -> Event | None:
        """Return the line that ends at byte `end`; None at the beginning of the file."""
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
                raise self._mismatch()
            length *= 4

    def _mismatch(self) -> DataError:
        return DataError(
            f"{self.path} does not belong to the checkpoint's manifest: a line was changed, added or removed, or one "
            "of the two is from another run. Restore the matching files, or use another --out."
        )

    def _replace_from(self, start: int, text: bytes) -> None:
        """Replace everything after `start`; the lines before stay, so that a crash in between can be repaired again."""
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
    """Return lines as they are in the file."""
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def whole_lines(text: bytes) -> Iterator[Event]:
    """Yield the events of complete lines, up to the first that is not an event."""
    for line in text[: text.rfind(b"\n") + 1].splitlines():
        try:
            yield _event(line)
        except ValueError:
            return


def _events_since(text: bytes, committed: int) -> list[Event]:
    """Return the events after a committed round, up to the end of the run or a round that was not committed."""

    def is_committed(event: Event) -> bool:
        return event["event"] != "end" and int(event.get("round", 0)) <= committed

    return list(takewhile(is_committed, whole_lines(text)))


def read_events(folder: Path) -> list[Event]:
    """Return the events of a run folder."""
    path = folder / "events.jsonl"
    try:
        return [_event(line) for line in read_file(path).splitlines()]
    except OSError:
        raise InputError(f"{folder} is not a run folder: it has no events.jsonl.") from None
    except ValueError:
        raise DataError(f"{path} has a damaged line; --resume repairs a run that was interrupted.") from None


def check_chain(folder: Path, events: Sequence[Event]) -> None:
    """Raise DataError at the first line that does not follow from the line before it."""
    head = START
    for number, event in enumerate(events, 1):
        head = _link(head, event)
        if event.get("chain") != head:
            raise DataError(
                f"{folder / 'events.jsonl'}: line {number} does not follow from the lines before it; "
                "one of them was changed, added or removed."
            )


def _link(head: str, event: Event) -> str:
    bare = {name: value for name, value in event.items() if name != "chain"}
    return sha256(f"{head}{json.dumps(bare)}".encode())


def _event(line: bytes) -> Event:
    """Return the event in a line; raise ValueError if it is not one."""
    event = parse_json(line)
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise ValueError("it is not an event")
    if type(event.get("round", 0)) is not int:
        raise ValueError("its round is not a number")
    return event


CLIENTS = "clients"

Rows = Mapping[int, Mapping[str, int | str]]  # by client
Columns = dict[str, Any]


def to_columns(rows: Rows) -> Columns:
    """Return the clients and, by name, one value for all or a list with each client's: None where it has none."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    columns: Columns = {CLIENTS: list(rows)}
    for name in names:
        values = [row.get(name) for row in rows.values()]
        columns[name] = values[0] if len(set(values)) == 1 else values
    return columns


def from_columns(columns: Columns) -> dict[int, dict[str, Any]]:
    """Return the rows by client; raise ValueError if the columns are not as `to_columns` makes them."""
    clients = columns.get(CLIENTS)
    if not isinstance(clients, list) or not all(type(client) is int for client in clients):
        raise ValueError("its clients are not a list of numbers")
    rows: dict[int, dict[str, Any]] = {client: {} for client in clients}
    for name, column in columns.items():
        if name == CLIENTS:
            continue
        values = column if isinstance(column, list) else [column] * len(clients)
        if len(values) != len(clients) or len(rows) != len(clients):
            raise ValueError(f"its {name} does not have one value per client")
        for client, value in zip(clients, values, strict=True):
            if value is not None:
                rows[client][name] = value
    return rows


Digests = Mapping[str, Mapping[str, Mapping[int, Mapping[str, str]]]]  # phase, direction, client, field
Posting = dict[str, Any]

ABOUT = ("phase", "purpose", "direction")  # of a posting: shared by its columns
_APART = {*ABOUT, "round", "client"}


def write_messages(digests: Digests) -> dict[str, Any]:
    """Return the digests of message fields as a `round` event stores them."""
    return {phase: {way: to_columns(rows) for way, rows in ways.items()} for phase, ways in digests.items()}


def write_traffic(postings: Iterable[Posting]) -> list[dict[str, Any]]:
    """Return the ledger's postings of one round as a `round` event stores them."""
    groups: dict[tuple[Any, ...], dict[int, dict[str, int]]] = {}
    for one in postings:
        rows = groups.setdefault(tuple(one[name] for name in ABOUT), {})
        rows[one["client"]] = {name: value for name, value in one.items() if name not in _APART}
    return [{**dict(zip(ABOUT, about, strict=True)), **to_columns(rows)} for about, rows in groups.items()]


def read_messages(event: Event) -> dict[str, dict[str, dict[int, dict[str, str]]]]:
    """Return digests by phase, direction, client and field.

    Raise LookupError, ValueError, TypeError or AttributeError if the event is not one of ours.
    """
    phases = event["messages"].items()
    return {phase: {way: from_columns(columns) for way, columns in ways.items()} for phase, ways in phases}


def read_traffic(event: Event) -> Iterator[Posting]:
    """Yield the ledger's postings; raise the same errors as `read_messages`."""
    for group in event["traffic"]:
        about = {name: group[name] for name in ABOUT}
        counts = {name: value for name, value in group.items() if name not in ABOUT}
        for client, row in from_columns(counts).items():
            yield {"round": event["round"], "client": client, **about, **row}
