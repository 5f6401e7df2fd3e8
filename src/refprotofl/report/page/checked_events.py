"""The events that a page is made of, and the one place where they are checked: lines may be anyone's.

How long a round would take over given links, from the bytes that crossed and the seconds that were measured.

Every verb of a round is a barrier: the server goes on when the slowest client has answered. A client's time for a verb
is its request on the way down, its computing, and its answer on the way up.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from refprotofl.core.network import Links
from refprotofl.records.events import Event, read_traffic

Count = Annotated[int, Field(ge=0, lt=2**53)]
Text = Annotated[str, Field(max_length=10_000)]
Name = Annotated[str, Field(max_length=200)]
Seconds = Annotated[float, Field(ge=0, lt=1e12, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Value = Annotated[float, Field(allow_inf_nan=False)]


class Partition(TypedDict):
    kind: NotRequired[Name]
    redraws: NotRequired[Count]
    moved: NotRequired[Count]
    class_counts: NotRequired[list[list[Count]]]


class Start(TypedDict):
    """Also of `resume`."""

    event: Literal["start", "resume"]
    run: NotRequired[Name]
    workers: NotRequired[Annotated[int, Field(ge=1)]]
    device: NotRequired[Name]
    partition: NotRequired[Partition]
    machine: NotRequired[dict[Name, Annotated[str, Field(max_length=500)] | int]]


class Posting(TypedDict):
    client: Count
    phase: Name
    purpose: Name
    direction: Literal["up", "down"]
    payload_bytes: Count
    parameters: NotRequired[Count]


class MaskPart(TypedDict):
    size: Count
    sent: Count
    by_anyone: Count
    unsent: Annotated[list[Count], Field(max_length=32)]
    never: Count


class Masks(TypedDict):
    clients: Count
    overlap: Share | None
    since: Count
    ages: Annotated[list[Count], Field(max_length=32)]
    parts: Annotated[dict[Name, MaskPart], Field(max_length=8)]


class Round(TypedDict):
    event: Literal["round"]
    round: Count
    asked: NotRequired[list[Count]]
    participants: NotRequired[list[Count]]
    traffic: NotRequired[list[Posting]]
    masks: NotRequired[Masks]
    spent: NotRequired[Annotated[dict[Name, Seconds], Field(max_length=32)]]
    seconds: NotRequired[Seconds]


class Evaluation(TypedDict):
    event: Literal["evaluation"]
    round: Count
    accuracy: Annotated[dict[Name, Share | None], Field(max_length=32)]
    metrics: NotRequired[
        Annotated[dict[Name, Annotated[dict[Name, Value], Field(max_length=32)]], Field(max_length=32)]
    ]
    loss: NotRequired[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None]
    per_client: NotRequired[Annotated[dict[Name, list[Share | None]], Field(max_length=32)]]
    confusion: NotRequired[list[list[Count]]]
    facts: NotRequired[dict[Name, Any]]


class Failure(TypedDict):
    event: Literal["client-failed"]
    round: NotRequired[Count]
    client: Count
    code: NotRequired[Name]
    reason: NotRequired[Text]


_KNOWN: dict[str, TypeAdapter[Any]] = {
    "start": TypeAdapter(Start),
    "resume": TypeAdapter(Start),
    "round": TypeAdapter(Round),
    "evaluation": TypeAdapter(Evaluation),
    "client-failed": TypeAdapter(Failure),
}


def _postings(event: Event) -> list[dict[str, Any]]:
    """Row by row, whether they stand in columns or not."""
    try:
        return list(read_traffic(event))
    except (TypeError, LookupError, AttributeError):
        raise ValueError("its traffic is not as we write it") from None


def read_event(found: object) -> Event:
    """What of a line the page uses; ValueError if it is no event, or not as we write it.

    Events of other names, as a later version may have, pass with their name and round alone.
    """
    if not isinstance(found, dict) or not isinstance(found.get("event"), str):
        raise ValueError("it is no event")
    known = _KNOWN.get(found["event"])
    if "traffic" in found and known is not None:
        found = {**found, "traffic": _postings(found)}
    if known is not None:
        checked: Event = known.validate_python(found)  # a ValidationError is a ValueError
        return checked
    number = found.get("round", 0)
    return {"event": found["event"][:50], "round": number if type(number) is int else 0}


def round_seconds(
    traffic: Sequence[Posting],
    spent: Mapping[str, float],
    links: Links,
    workers: int = 1,
    samples: Sequence[int] | None = None,
) -> float:
    """Of a round with joining, without evaluation, which only we want.

    The seconds that this machine waited for a verb are those of all clients, `workers` at a time; a client's part of
    them is as large as its part of the samples, or that of all where `samples` are not known.
    """
    phases: dict[str, dict[int, dict[str, int]]] = {}
    for row in traffic:
        if row["purpose"] != "evaluation":
            crossed = phases.setdefault(row["phase"], {}).setdefault(row["client"], {"up": 0, "down": 0})
            crossed[row["direction"]] += row["payload_bytes"]
    total = spent.get("server", 0.0)
    for phase, clients in phases.items():
        computing = _computing(list(clients), workers * spent.get(phase, 0.0), samples)
        total += max(
            links.of(client).seconds(crossed["up"], crossed["down"]) + computing[client]
            for client, crossed in clients.items()
        )
    return total


def _computing(clients: Sequence[int], seconds: float, samples: Sequence[int] | None) -> dict[int, float]:
    """Each client's part of the seconds that all took one after the other."""
    known = samples is not None and all(client < len(samples) for client in clients)
    weights = {client: samples[client] if known and samples is not None else 1 for client in clients}
    whole = sum(weights.values()) or 1
    return {client: seconds * weight / whole for client, weight in weights.items()}
