"""Entries of a `round` event for each client, stored in columns, and the byte counts of a relay (wire.json).

A column with the same value for all clients is stored as that one value, so that events stay small.
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


FILE = "wire.json"  # in a run folder
LONGEST = 10_000  # bytes


class Crossed(TypedDict):
    """Bytes between nodes and server as a relay counted them, with TLS, HTTP and Flower's own messages."""

    up: NonNegativeInt  # sent by nodes
    down: NonNegativeInt
    connections: NonNegativeInt
    refused: NonNegativeInt
    flipped: NonNegativeInt  # bits that were flipped on purpose
    seconds: NonNegativeFloat


_CROSSED = TypeAdapter(Crossed)


def write_crossed(path: Path, crossed: Crossed) -> None:
    """Write the counts of a relay."""
    write_whole(path, (json.dumps(crossed) + "\n").encode())


def read_crossed(folder: Path) -> Crossed | None:
    """Return the relay's counts in a run folder; None where there are none."""
    path = folder / FILE
    if not check_file(path):
        return None
    try:
        with open_file(path) as file:
            return _CROSSED.validate_json(file.read(LONGEST), strict=True)
    except (OSError, ValidationError):
        raise DataError(f"{path} is not a file of refprotofl relay: copy its counts there again.") from None
