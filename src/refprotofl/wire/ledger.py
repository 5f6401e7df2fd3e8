"""The ledger: counts of every message between client and server, by round, phase, client and direction."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from torch import Tensor
from typing_extensions import TypedDict  # pydantic, which checks these, takes typing's own from Python 3.12 on only

from refprotofl.wire.codec import Message, Sparse
from refprotofl.wire.primitives import WireError

Direction = Literal["up", "down"]  # up: from the client to the server
Purpose = Literal["training", "one_off", "evaluation"]
Kind = Literal["parameters", "prototype_values", "other_values"]

_KINDS: tuple[Kind, ...] = get_args(Kind)


class Costs(TypedDict):
    payload_bytes: int
    messages: int


class Traffic(TypedDict):
    parameters: int
    prototype_values: int
    other_values: int
    payload_bytes: int
    messages: int


class Totals(TypedDict):
    """The buckets of a run's summary: training traffic by direction and kind of value, the rest in bytes."""

    uplink: Traffic
    downlink: Traffic
    one_off: Costs
    evaluation: Costs


_COUNTED = tuple(Traffic.__annotations__)
_BUCKETS = {bucket: tuple(counts.__annotations__) for bucket, counts in Totals.__annotations__.items()}


@dataclass(frozen=True)
class Counted:
    """A field that counts as another number of values than it has elements: packed values, or a mask."""

    kind: Kind
    values: int


Posting = dict[str, int | str]  # a line of the ledger: its subject, then the counts


@dataclass(frozen=True, order=True)
class _Entry:
    """The subject of one line of the ledger."""

    client: int
    phase: str
    purpose: Purpose
    direction: Direction


class Ledger:
    """Counts messages; keeps the rows of rounds not closed yet, and the totals of all."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[_Entry, Counter[str]]] = {}
        self._totals: dict[str, Counter[str]] = {bucket: Counter() for bucket in _BUCKETS}

    def record(
        self,
        *,
        round: int,
        phase: str,
        client: int,
        direction: Direction,
        message: Message,
        size: int,
        kinds: Mapping[str, Kind | Counted],
        purpose: Purpose = "training",
    ) -> None:
        """Count one message whose encoding has `size` bytes; `kinds` are the kinds of values in its tensors."""
        bucket = self._totals[_bucket(purpose, direction)]
        counts = _count_values(message, kinds)
        counts.update(payload_bytes=size, messages=1)
        entry = _Entry(client, phase, purpose, direction)
        self._rows.setdefault(round, {}).setdefault(entry, Counter()).update(counts)
        bucket.update(counts)

    def rows(self, round: int) -> list[Posting]:
        """Return the rows of a round that is not closed, by client, phase, purpose and direction."""
        entries = self._rows.get(round, {})
        return [_posting(round, entry, entries[entry]) for entry in sorted(entries)]

    def close(self, round: int) -> list[Posting]:
        """Return the rows of a round and drop them; the totals keep their sums."""
        rows = self.rows(round)
        self._rows.pop(round, None)
        return rows

    def totals(self) -> Totals:
        """Return the `communication` part of a run's summary."""
        totals = {bucket: {name: self._totals[bucket][name] for name in names} for bucket, names in _BUCKETS.items()}
        return cast(Totals, totals)

    @classmethod
    def restore(cls, totals: Mapping[str, Any]) -> "Ledger":
        """Return a ledger that continues earlier `totals()`."""
        ledger = cls()
        for bucket, names in _BUCKETS.items():
            counts = totals.get(bucket)
            if not isinstance(counts, Mapping) or set(counts) != set(names):
                raise WireError(f"the totals to continue must hold {', '.join(names)} under {bucket!r}")
            if not all(type(count) is int and count >= 0 for count in counts.values()):
                raise WireError(f"the totals to continue must be whole numbers, zero or more: {bucket!r}")
            ledger._totals[bucket].update(counts)
        return ledger


def _bucket(purpose: Purpose, direction: Direction) -> str:
    if purpose == "training":
        return {"up": "uplink", "down": "downlink"}[direction]
    return purpose


def _count_values(message: Message, kinds: Mapping[str, Kind | Counted]) -> Counter[str]:
    """Count the values of each kind in a message: those of a Sparse without its indices, none for strings."""
    counts: Counter[str] = Counter()
    for name, value in message.items():
        kind = kinds.get(name, "other_values")
        if isinstance(kind, Counted):
            counts[kind.kind] += kind.values
        elif isinstance(value, Tensor):
            counts[kind] += value.numel()
        elif isinstance(value, Sparse):
            counts[kind] += value.values.numel()
        elif not isinstance(value, str):
            counts["other_values"] += 1
    unknown = set(counts) - set(_KINDS)
    if unknown:
        raise ValueError(f"unknown kinds of values: {sorted(unknown)}; known are {_KINDS}")
    return counts


def _posting(round: int, entry: _Entry, counts: Counter[str]) -> Posting:
    about: Posting = {"round": round, "client": entry.client, "phase": entry.phase}
    about |= {"purpose": entry.purpose, "direction": entry.direction}
    return about | {name: counts[name] for name in _COUNTED}
