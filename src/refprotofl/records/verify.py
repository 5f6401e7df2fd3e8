"""Verification of a run: recompute its digest, check its records, and find where two runs diverge.

Nothing here imports the user's own code.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.core import DataError, InputError, State, counted, digest_run, digest_state
from refprotofl.experiment import Experiment, differences
from refprotofl.records.atomic_files import sha256
from refprotofl.records.checkpoint import Progress, place_digests
from refprotofl.records.events import Event, check_chain, read_events, read_messages
from refprotofl.records.folder import read_experiment
from refprotofl.records.manifest import SERVER_FILES, kept_name, kept_rounds, read_manifest
from refprotofl.records.safe_io import check_file, check_folder, check_run_folder, read_file
from refprotofl.records.state_files import load_state
from refprotofl.records.summary import build_summary, read_summary

LIMIT = (
    "This detects accidental and partial changes. The hashes have no key: anyone who rewrites the whole folder can "
    "recompute them."
)


def check_records(folder: Path, experiment: Experiment, manifest: dict[str, Any], events: Sequence[Event]) -> None:
    """Raise DataError where experiment, events or summary disagree with the manifest."""
    check_experiment(folder, experiment, manifest)
    _check_rounds(folder, manifest, events)
    _check_summary(folder, experiment, manifest, events)


def check_experiment(folder: Path, experiment: Experiment, manifest: dict[str, Any]) -> None:
    """Raise DataError unless the experiment is the manifest's; a run that is being extended may have more rounds."""
    run = manifest["run"]
    planned = experiment.model_copy(update={"rounds": run["rounds"]})
    if planned.hash != run["experiment"] or run["rounds"] > experiment.rounds:
        raise DataError(f"{folder / 'experiment.json'} is not the experiment of the manifest: the hashes differ.")
    if manifest["progress"]["round"] > experiment.rounds:
        raise DataError(f"{folder}: the manifest has more rounds than experiment.json.")


def _check_rounds(folder: Path, manifest: dict[str, Any], events: Sequence[Event]) -> None:
    path, last = folder / "events.jsonl", manifest["progress"]["round"]
    check_chain(folder, events)
    rounds = [event for event in events if event["event"] == "round"]
    if [event.get("round") for event in rounds] != list(range(1, last + 1)):
        raise DataError(f"{path} must have the rounds 1 to {last} once each, in order; a line was added or removed.")
    if rounds[-1].get("chain") != manifest["chain"]:
        raise DataError(f"{path}: round {last} is not the one in the manifest; its line was changed.")
    evaluations = [event for event in events if event["event"] == "evaluation"]
    if _as_text(evaluations[-1] if evaluations else {}) != _as_text(manifest["progress"]["accuracy"]):
        raise DataError(f"{path}: the last evaluation is not the one in the manifest; its line was changed.")


def _as_text(event: Event) -> str:
    """Return the event as text, because NaN is not equal to itself."""
    return json.dumps({name: value for name, value in event.items() if name != "chain"})


def _check_summary(folder: Path, experiment: Experiment, manifest: dict[str, Any], events: Sequence[Event]) -> None:
    path, progress = folder / "summary.json", Progress.recorded(manifest)
    if not check_file(path):
        return
    found = read_summary(path)
    ended = progress.stopped or progress.round == experiment.rounds
    if not ended or not progress.accuracy:
        raise DataError(f"{path} belongs to a finished run, but this run is not finished: delete it and use --resume.")
    expected = build_summary(experiment, progress, manifest["state_digest"], found["full_model"]["parameters"])
    stored = {name: value for name, value in found.items() if name in expected}
    changed = differences(stored, dict(expected))
    if changed and json.dumps(stored, sort_keys=True) != json.dumps(expected, sort_keys=True):
        raise DataError(f"{path} does not follow from the run's manifest: {', '.join(changed)} was changed.")
    sealed = events[-1].get("summary") if events[-1]["event"] == "end" else None
    if sealed is not None and sealed != sha256(read_file(path)):
        raise DataError(f"{path} is not the file that the run wrote at its end: the hashes differ.")


@dataclass(frozen=True)
class Verified:
    round: int
    state_digest: str
    clients_with_state: int
    recomputed: bool  # False: the states of clients that never trained are not known
    notes: tuple[str, ...]  # the limits of this result
    kept: tuple[int, ...] = ()  # the rounds whose states were checked


class _Round(TypedDict):
    round: Annotated[int, Field(ge=1)]
    state_digest: str
    asked: list[int]
    messages: dict[str, dict[str, dict[str, Any]]]  # by phase and direction, as `read_messages` takes them
    server: dict[str, str]
    clients: dict[str, str]


_ROUND = TypeAdapter(_Round)

GIVEN = re.compile(r"[0-9a-f]{64}")  # the file name of a message that clients were sent
MOST_NAMED = 20  # damaged files in one error message


ReadClient = Callable[[Path, dict[str, Any]], State | None]


def verify_run(folder: Path, initial_digests: Sequence[str] | None, read_client: ReadClient) -> Verified:
    """Check every state of every kept round against manifests and events; raise DataError with what is damaged.

    `initial_digests` are those of the clients before they trained, None if they are unknown. `read_client` returns a
    client's state in the checkpoint by its record, and None if the state is stored elsewhere.
    """
    check_run_folder(folder)
    checkpoint = folder / "checkpoint"
    experiment, manifest = read_experiment(folder), read_manifest(checkpoint)
    if not manifest:
        raise InputError(f"{folder} has no committed round yet; there is nothing to verify.")
    last = manifest["progress"]["round"]
    check = _StateCheck(checkpoint, initial_digests or [""] * experiment.clients, read_client)
    rounds_kept = {last: manifest, **check.kept_manifests(last)}
    digests = {round: check.run_digest(one) for round, one in rounds_kept.items()}
    check.sent_messages()
    check.raise_damaged(folder)
    recorded = {event["round"]: event["state_digest"] for event in rounds(folder)}
    if last not in recorded:
        raise DataError(f"{folder}: events.jsonl lacks round {last}; --resume repairs a run that was interrupted.")
    for round, one in rounds_kept.items():
        digest = digests[round] or one["state_digest"]
        sources = {
            "manifest": one["state_digest"],
            "events.jsonl": recorded.get(round, digest),
        }  # `check_records` looks for gaps
        for source, expected in sources.items():
            if digest != expected:
                raise DataError(
                    f"{folder}: the states of round {round} have digest {digest}, but its {source} has {expected}."
                )
    check_records(folder, experiment, manifest, read_events(folder))
    remote = sum(read_client(checkpoint, record) is None for record in manifest["clients"].values())
    on_nodes = f"The states of {remote} clients are on their nodes; their digests are as the nodes reported them."
    notes = (on_nodes, LIMIT) if remote else (LIMIT,)
    kept = tuple(sorted(rounds_kept))
    return Verified(last, recorded[last], len(manifest["clients"]), bool(digests[last]), notes, kept)


class _StateCheck:
    """Reads all states that manifests name, each once, and collects what is damaged."""

    def __init__(self, checkpoint: Path, initial_digests: Sequence[str], read_client: ReadClient) -> None:
        self._checkpoint = checkpoint
        self._initial = initial_digests
        self._read_client = read_client
        self._read: dict[str, str] = {}  # digests found, by what was to be read
        self._damaged: dict[str, None] = {}  # in the order in which it was found

    def kept_manifests(self, last: int) -> dict[int, dict[str, Any]]:
        """Return the manifests of earlier rounds that are kept; later ones were never committed."""
        found = {}
        for round in kept_rounds(self._checkpoint):
            if round > last:
                continue
            try:
                one = read_manifest(self._checkpoint, kept_name(round))
                if one["progress"]["round"] != round:
                    raise DataError(f"The checkpoint's {self._checkpoint / kept_name(round)} is of another round.")
                found[round] = one
            except DataError as problem:
                self._damaged[str(problem)] = None
        return {round: one for round, one in found.items() if round < last}

    def run_digest(self, manifest: dict[str, Any]) -> str:
        """Recompute the state digest of a round; empty if a state of it is not known."""
        for name in SERVER_FILES:
            if name in manifest:
                named = manifest[name]
                self._digest(named, lambda one: load_state(self._checkpoint / one["file"], one["digest"]))
        found = {
            int(client): {"digest": self._digest(record, lambda one: self._read_client(self._checkpoint, one))}
            for client, record in manifest["clients"].items()
        }
        clients = place_digests(self._checkpoint, self._initial, found)
        server = self._digest(manifest["server"], lambda one: None)
        return "" if "" in (server, *clients) else digest_run(server, clients)

    def _digest(self, record: dict[str, Any], read: Callable[[dict[str, Any]], State | None]) -> str:
        """Return the digest of a record's state: as recorded if it is stored elsewhere, empty if it is damaged."""
        key = json.dumps(record, sort_keys=True, default=str)
        if key not in self._read:
            try:
                state = read(record)
                self._read[key] = record["digest"] if state is None else digest_state(state)
            except DataError as problem:
                self._damaged[str(problem)] = None
                self._read[key] = ""
        return self._read[key]

    def sent_messages(self) -> None:
        """Check the messages that clients were sent when they joined: their files are named by digest."""
        folder = self._checkpoint / "blobs"
        if not check_folder(folder):
            return
        for path in sorted(folder.iterdir()):
            if GIVEN.fullmatch(path.name) and sha256(read_file(path)) != path.name:
                self._damaged[f"The checkpoint file {path} was changed: its digest is not its name."] = None

    def raise_damaged(self, folder: Path) -> None:
        problems = list(self._damaged)
        if len(problems) == 1:
            raise DataError(problems[0])
        if problems:
            more = f" And {len(problems) - MOST_NAMED} more." if len(problems) > MOST_NAMED else ""
            raise DataError(f"{folder}: {len(problems)} files are damaged. {' '.join(problems[:MOST_NAMED])}{more}")


def first_difference(one: Path, other: Path) -> str | None:
    """Return the first round, phase and tensor in which two runs differ; None if all common rounds agree."""
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
    """Yield the checked `round` events of a run, with messages row by row."""
    for event in read_events(folder):
        if event["event"] == "round":
            try:
                _ROUND.validate_python(event, strict=True)
            except ValidationError as error:
                where = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
                raise DataError(f"{folder / 'events.jsonl'}: a round's {where} is invalid.") from None
            try:
                messages = read_messages(event)
            except (LookupError, ValueError, TypeError, AttributeError):
                raise DataError(f"{folder / 'events.jsonl'}: a round's messages is invalid.") from None
            yield {**event, "messages": messages}


def _paired(left: dict[str, Any], right: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield pairs of digests in the order in which a round computes them."""
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
