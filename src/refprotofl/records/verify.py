"""Recomputes a run's digest from its checkpoint, checks what is told of it, and finds where two runs part.

Nothing here imports the user's own code.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.basics.state import State, digest_run, digest_state
from refprotofl.basics.units import counted
from refprotofl.errors import DataError, InputError
from refprotofl.experiment import differences
from refprotofl.records.checkpoint import place_digests
from refprotofl.records.events import read_events
from refprotofl.records.folder import read_experiment
from refprotofl.records.inside import check_run_folder
from refprotofl.records.manifest import read_manifest
from refprotofl.records.rounds import read_messages
from refprotofl.records.states import load_state
from refprotofl.records.telling import check_told


@dataclass(frozen=True)
class Verified:
    round: int
    state_digest: str
    clients_with_state: int
    recomputed: bool  # False: the states of clients that never trained are not known
    notes: tuple[str, ...]  # what this rests on, and what it cannot prove


class _Round(TypedDict):
    round: Annotated[int, Field(ge=1)]
    state_digest: str
    asked: list[int]
    messages: dict[str, dict[str, dict[str, Any]]]  # by phase and direction, what `read_messages` reads
    server: dict[str, str]
    clients: dict[str, str]


_ROUND = TypeAdapter(_Round)


def verify_run(
    folder: Path, initial_digests: Sequence[str] | None, read_client: Callable[[Path, dict[str, Any]], State | None]
) -> Verified:
    """The digest of every state, against manifest and events; DataError where they disagree.

    `initial_digests` are those of the clients before they trained, None if nobody knows. `read_client` finds a client's
    state in the checkpoint by its record; None if it lies elsewhere, where it cannot be looked at.
    """
    check_run_folder(folder)
    experiment, manifest = read_experiment(folder), read_manifest(folder / "checkpoint")
    if not manifest:
        raise InputError(f"{folder} has no committed round yet; there is nothing to verify.")
    checkpoint, last = folder / "checkpoint", manifest["progress"]["round"]
    server = digest_state(load_state(checkpoint / manifest["server"]["file"], manifest["server"]["digest"]))
    found, away = {}, 0
    for client, record in manifest["clients"].items():
        state = read_client(checkpoint, record)
        away += state is None
        found[int(client)] = {"digest": record["digest"] if state is None else digest_state(state)}
    clients = place_digests(checkpoint, initial_digests or [""] * experiment.clients, found)
    told = {event["round"]: event["state_digest"] for event in rounds(folder)}
    if last not in told:
        raise DataError(f"{folder}: events.jsonl lacks round {last}; a run that was cut off is mended by --resume.")
    recomputed = "" not in clients
    digest = digest_run(server, clients) if recomputed else manifest["state_digest"]
    for source, expected in (("manifest", manifest["state_digest"]), ("events.jsonl", told[last])):
        if digest != expected:
            raise DataError(f"{folder}: the states of round {last} give {digest}, but its {source} says {expected}.")
    notes = check_told(folder, experiment, manifest, read_events(folder))
    if away:
        notes.insert(0, f"The states of {away} clients lie on their nodes; their digests are as the nodes told them.")
    return Verified(last, digest, len(found), recomputed, tuple(notes))


def first_difference(one: Path, other: Path) -> str | None:
    """The first round, phase and tensor in which two runs differ; None if they agree as far as both go."""
    changed = differences(read_experiment(one).plain(), read_experiment(other).plain())
    if changed:
        return f"The experiments differ in {', '.join(changed)}."
    for left, right in zip(rounds(one), rounds(other), strict=False):
        for place, here, there in _paired(left, right):
            if here != there:
                return f"Round {left['round']}, {place}: {here} and {there}."
    done = [len(list(rounds(folder))) for folder in (one, other)]
    if done[0] != done[1]:
        return f"They agree for {counted(min(done), 'round')}; one has {done[0]}, the other {done[1]}."
    return None


def rounds(folder: Path) -> Iterator[dict[str, Any]]:
    for event in read_events(folder):
        if event["event"] == "round":
            try:
                _ROUND.validate_python(event, strict=True)
            except ValidationError as error:
                where = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
                raise DataError(f"{folder / 'events.jsonl'}: a round's {where} is not what it must be.") from None
            try:
                messages = read_messages(event)
            except (ValueError, TypeError, AttributeError):
                raise DataError(f"{folder / 'events.jsonl'}: a round's messages are not what they must be.") from None
            yield {**event, "messages": messages}


def _paired(left: dict[str, Any], right: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Pairs of digests in the order in which a round computes them."""
    yield "cohort", left["asked"], right["asked"]
    for phase, directions in left["messages"].items():
        for direction in ("down", "up"):
            others = right["messages"].get(phase, {}).get(direction, {})
            for client, fields in directions.get(direction, {}).items():
                place = f"{phase} {direction}, client {client}"
                yield from _fields(place, fields, others.get(client, {}))
    yield from _fields("server state", left["server"], right["server"])
    yield from _fields("state of client", left["clients"], right["clients"])
    yield "state digest", left["state_digest"], right["state_digest"]


def _fields(place: str, left: dict[str, str], right: dict[str, str]) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted(left.keys() | right.keys()):
        yield f"{place}: {name}", left.get(name), right.get(name)
