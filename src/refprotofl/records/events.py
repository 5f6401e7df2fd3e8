"""events.jsonl: what happened, line by line, each line chained to those before it.

`chain` of a line is the SHA-256 over the chain before it and the line without its `chain`. It starts with the SHA-256
of all that stands before the first such line: of nothing, or of what an older version wrote.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refprotofl.errors import DataError, InputError
from refprotofl.records.files import sha256, write_error, write_whole
from refprotofl.records.inside import check_file, open_file, parse_json, read_file

Event = dict[str, Any]


class EventLog:
    """Whoever goes on with a run mends it first; then it grows, and is never read again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._head = sha256(b"")

    def chained(self, events: Sequence[Event]) -> list[Event]:
        """The events as the next lines; nothing is written yet."""
        lines, head = [], self._head
        for event in events:
            head = _link(head, event)
            lines.append({**event, "chain": head})
        return lines

    def append(self, lines: Sequence[Event]) -> None:
        """Lines that were chained before, so that a manifest can hold the very same."""
        try:
            with open_file(self.path, "ab") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            raise write_error(self.path, problem) from None
        self._head = lines[-1]["chain"]

    def tell(self, event: Event) -> None:
        self.append(self.chained([event]))

    def mend(self, committed: int, lines: Sequence[Event]) -> list[Event]:
        """After a crash: a torn last line goes, and what the last committed round had to tell is there once.

        What stays is not chained anew: a line that someone changed must not become one of ours. Gives what stays.
        """
        data = read_file(self.path) if check_file(self.path) else b""
        try:
            told = [_event(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
            kept = [event for event in told if event.get("round", 0) <= committed and event["event"] != "end"]
        except (ValueError, TypeError):
            raise DataError(f"{self.path} has a damaged line before its last one; remove that line to go on.") from None
        if lines and lines[-1] not in kept:
            kept = [event for event in kept if event.get("round", 0) < committed] + list(lines)
        whole = "".join(f"{json.dumps(event)}\n" for event in kept).encode()
        write_whole(self.path, whole)
        self._head = str(kept[-1].get("chain") or sha256(whole)) if kept else sha256(b"")
        return kept


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
