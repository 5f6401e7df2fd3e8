"""Rows of many clients as columns: what is the same for all stands once, so that an event stays small.

What a `round` event holds for every client, written in columns and read row by row.

What crossed between nodes and server as a relay counted it: TLS, HTTP and Flower's own messages are in it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat, NonNegativeInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.core.errors import DataError
from refprotofl.records.events import Event
from refprotofl.records.files import write_whole
from refprotofl.records.safe_io import check_file, open_file

CLIENTS = "clients"

Rows = Mapping[int, Mapping[str, int | str]]  # by client
Columns = dict[str, Any]


def packed(rows: Rows) -> Columns:
    """The clients, and by name one value for all of them, or a list with each one's: None where it has none."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    columns: Columns = {CLIENTS: list(rows)}
    for name in names:
        values = [row.get(name) for row in rows.values()]
        columns[name] = values[0] if len(set(values)) == 1 else values
    return columns


def unpacked(columns: Columns) -> dict[int, dict[str, Any]]:
    """ValueError if they are not what `packed` gives."""
    clients = columns.get(CLIENTS)
    if not isinstance(clients, list) or not all(type(client) is int for client in clients):
        raise ValueError("its clients are no list of numbers")
    rows: dict[int, dict[str, Any]] = {client: {} for client in clients}
    for name, column in columns.items():
        if name == CLIENTS:
            continue
        values = column if isinstance(column, list) else [column] * len(clients)
        if len(values) != len(clients) or len(rows) != len(clients):
            raise ValueError(f"its {name} are not one for each client")
        for client, value in zip(clients, values, strict=True):
            if value is not None:
                rows[client][name] = value
    return rows


Digests = Mapping[str, Mapping[str, Mapping[int, Mapping[str, str]]]]  # phase, direction, client, field
Posting = dict[str, Any]

ABOUT = ("phase", "purpose", "direction")  # of a posting: what its columns have in common
_APART = {*ABOUT, "round", "client"}


def write_messages(digests: Digests) -> dict[str, Any]:
    return {phase: {way: packed(rows) for way, rows in ways.items()} for phase, ways in digests.items()}


def write_traffic(postings: Iterable[Posting]) -> list[dict[str, Any]]:
    """The ledger's postings of one round."""
    groups: dict[tuple[Any, ...], dict[int, dict[str, int]]] = {}
    for one in postings:
        rows = groups.setdefault(tuple(one[name] for name in ABOUT), {})
        rows[one["client"]] = {name: value for name, value in one.items() if name not in _APART}
    return [{**dict(zip(ABOUT, about, strict=True)), **packed(rows)} for about, rows in groups.items()]


def read_messages(event: Event) -> dict[str, dict[str, dict[int, dict[str, str]]]]:
    """ValueError, TypeError or AttributeError if the event is not one of ours."""
    return {phase: {way: _rows(columns) for way, columns in ways.items()} for phase, ways in event["messages"].items()}


def read_traffic(event: Event) -> Iterator[Posting]:
    """As the ledger gave them; the same errors. An older version wrote a line for each client."""
    for group in event["traffic"]:
        if "client" in group:
            yield group
            continue
        about = {name: group[name] for name in ABOUT}
        counts = {name: value for name, value in group.items() if name not in ABOUT}
        for client, row in unpacked(counts).items():
            yield {"round": event["round"], "client": client, **about, **row}


def _rows(columns: dict[str, Any]) -> dict[int, dict[str, str]]:
    """An older version wrote the fields by client."""
    if isinstance(columns.get("clients"), list):
        return unpacked(columns)
    return {int(client): dict(fields) for client, fields in columns.items()}


FILE = "wire.json"  # in a run folder
LONGEST = 10_000  # bytes of such a file


class Crossed(TypedDict):
    """`up` is what nodes send, in bytes."""

    up: NonNegativeInt
    down: NonNegativeInt
    connections: NonNegativeInt
    refused: NonNegativeInt
    flipped: NonNegativeInt  # bits that were turned over on purpose
    seconds: NonNegativeFloat


_CROSSED = TypeAdapter(Crossed)


def write_crossed(path: Path, crossed: Crossed) -> None:
    write_whole(path, (json.dumps(crossed) + "\n").encode())


def read_crossed(folder: Path) -> Crossed | None:
    """Of a run folder; None where no relay has counted."""
    path = folder / FILE
    if not check_file(path):
        return None
    try:
        with open_file(path) as file:
            return _CROSSED.validate_json(file.read(LONGEST), strict=True)
    except (OSError, ValidationError):
        raise DataError(f"{path} is not what refprotofl relay writes: put its counts there again.") from None
