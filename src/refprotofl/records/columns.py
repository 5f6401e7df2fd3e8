"""Rows of many clients as columns: what is the same for all stands once, so that an event stays small."""

from collections.abc import Mapping
from typing import Any

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
