"""What a `round` event holds for every client, written in columns and read row by row."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from refprotofl.records.columns import packed, unpacked
from refprotofl.records.events import Event

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
