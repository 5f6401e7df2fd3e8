"""The events that a page uses, validated, and the estimated time of a round over given links.

Every request of a round is a barrier: the server continues when the slowest client has answered. A client's time for a
request is that of the downlink, its computation and the uplink.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from refprotofl.core import Links
from refprotofl.records import Event, read_traffic

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
    """An event `start` or `resume`."""

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
    subset: NotRequired[Count]


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
    """Return the traffic of a round as rows."""
    try:
        return list(read_traffic(event))
    except (TypeError, LookupError, AttributeError):
        raise ValueError("its traffic has another format") from None


def read_event(found: object) -> Event:
    """Return the fields of a line that the page uses; raise ValueError if it is not a valid event.

    Events of unknown names are reduced to name and round.
    """
    if not isinstance(found, dict) or not isinstance(found.get("event"), str):
        raise ValueError("it is not an event")
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
    """Return the estimated seconds of a round, with joining and without evaluation.

    The measured seconds of a phase are those of all clients, `workers` at a time; they are split among clients in
    proportion to their samples, or evenly if `samples` is not known.
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
    """Split the seconds of all clients in proportion to their samples."""
    known = samples is not None and all(client < len(samples) for client in clients)
    weights = {client: samples[client] if known and samples is not None else 1 for client in clients}
    whole = sum(weights.values()) or 1
    return {client: seconds * weight / whole for client, weight in weights.items()}
