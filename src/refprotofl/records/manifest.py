"""The manifest of a checkpoint: its schema, and the one reader that checks it.

`manifest.json` is the committed state of the run; each round that is kept has a `manifest-N.json` as well.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.core import DataError, numerics
from refprotofl.records.atomic_files import sha256
from refprotofl.records.safe_io import CHECKPOINT, check_folder, parse_json, read_file
from refprotofl.wire import Totals

SCHEMA = 3
SERVER_FILES = ("server", "observed")  # keys of the manifest

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]


class Evaluated(TypedDict):
    """The latest `evaluation` event."""

    round: Count
    accuracy: dict[str, float | None]
    metrics: dict[str, dict[str, float]]  # by protocol and name
    per_client: dict[str, list[float | None]]
    clients: list[Count]
    trained_clients: Count
    facts: dict[str, Any]
    confusion: list[list[Count]]
    subset: NotRequired[Count]  # of the test samples, where not all were scored


class Seconds(TypedDict):
    total: float
    train: float
    evaluate: float


class Stopping(TypedDict):
    """The record of early stopping: the best accuracy so far, its round, and the evaluations since then."""

    best: float
    best_round: Annotated[int, Field(ge=1)]
    waited: Count
    reason: Literal["", "target", "patience"]  # empty: the run continues


class StoredProgress(TypedDict):
    """`Progress` as it is stored."""

    round: Annotated[int, Field(ge=1)]
    communication: Totals
    accuracy: Evaluated | Annotated[dict[str, Any], Field(max_length=0)]  # none before the first evaluation
    participations: Count
    steps: Count | None
    moves: dict[str, list[float]]
    suspects: dict[str, dict[str, float]]
    seconds: Seconds
    stopping: NotRequired[Stopping | None]


class ServerFile(TypedDict):
    file: Annotated[str, Field(pattern=r"^server-\d{1,9}\.safetensors$")]
    digest: Digest


class ObservedFile(TypedDict):
    file: Annotated[str, Field(pattern=r"^observed-\d{1,9}\.safetensors$")]
    digest: Digest


class ClientRecord(TypedDict):
    """The engine's record of a client; only the digest has a meaning outside the engine."""

    digest: Digest


class StoredEvent(TypedDict):
    event: str


class RunMark(TypedDict):
    """The identity of the run, and its experiment when the round was committed."""

    id: str
    experiment: Digest
    rounds: Annotated[int, Field(ge=1)]


class Origin(TypedDict):
    """The other determinants of the results in addition to the experiment; None where unknown."""

    results: int
    data: str | None
    code: dict[str, str]  # by module:attribute
    numerics: NotRequired[Literal["portable", "native"]]  # absent in kept results that do not record it


class Marks(TypedDict, total=False):
    """The entries of a manifest that each commit takes over from the one before."""

    run: RunMark
    origin: Origin
    initial: dict[str, Digest]  # of a client that never trained, by its backbone's name
    chain: Digest  # of the round's last event


class Rollback(TypedDict):
    """A return to this round: recorded in its manifest until the next one is committed."""

    round: Annotated[int, Field(ge=1)]
    before: Annotated[int, Field(ge=1)]  # the last committed round before the rollback
    events: Annotated[str, Field(pattern=r"^events\.\d{1,9}\.jsonl$")]  # the file that later events were moved to
    reason: str


class Manifest(TypedDict):
    schema: int
    progress: StoredProgress
    state_digest: Digest
    server: ServerFile
    observed: NotRequired[ObservedFile]
    clients: dict[Annotated[str, Field(pattern=r"^(0|[1-9]\d{0,8})$")], ClientRecord]
    events: Annotated[list[StoredEvent], Field(min_length=1)]
    events_size: Count  # size of events.jsonl including the events of the round
    run: RunMark
    origin: Origin
    initial: dict[str, Digest]
    chain: Digest
    rollback: NotRequired[Rollback]


_MANIFEST = TypeAdapter(Manifest)


CURRENT = "manifest.json"


def kept_name(round: int) -> str:
    """Return the name of the manifest of a round that is kept."""
    return f"manifest-{round}.json"


def read_manifest(folder: Path, name: str = CURRENT) -> dict[str, Any]:
    """Return the manifest of this checkpoint; empty before the first committed round."""
    check_folder(folder)
    path = folder / name
    try:
        manifest: dict[str, Any] = parse_json(read_file(path))
        intact = manifest.pop("sha256", None) == sha256(json.dumps(manifest).encode())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as problem:
        raise DataError(f"The checkpoint's {path} is damaged: {problem}.") from None
    if not intact:
        raise DataError(f"The checkpoint's {path} is damaged: its contents do not match the hash in it.")
    if manifest.get("schema") != SCHEMA:
        raise DataError(f"The checkpoint's {path} has schema {manifest.get('schema')!r}; this version reads {SCHEMA}.")
    try:
        _MANIFEST.validate_python(manifest, strict=True)  # the validated copy would lack the engine's own keys
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"The checkpoint's {path} is not a manifest: {where}: {first['msg']}.") from None
    return manifest


def signed(manifest: dict[str, Any]) -> bytes:
    """Return the contents of a manifest file, with the hash of everything else in it."""
    body = json.dumps(manifest)
    return f'{{"sha256": "{sha256(body.encode())}", {body[1:]}'.encode()


KEPT = re.compile(r"manifest-(0|[1-9]\d{0,8})\.json")


def kept_rounds(folder: Path) -> list[int]:
    """Return the rounds that have their own manifest, the newest first."""
    if not check_folder(folder):
        return []
    found = [KEPT.fullmatch(path.name) for path in folder.iterdir()]
    return sorted((int(match[1]) for match in found if match), reverse=True)


def readable_manifest(folder: Path) -> dict[str, Any]:
    """Return the newest manifest that can be read, for entries that all of a run share; empty where there is none."""
    try:
        return read_manifest(folder)
    except DataError:
        for round in kept_rounds(folder):
            try:
                return read_manifest(folder, kept_name(round))
            except DataError:
                continue
        raise


def recorded_numerics(folder: Path) -> numerics.Mode | None:
    """Return the numerics that the run in this folder was computed with; None before its first committed round."""
    try:
        manifest = readable_manifest(folder / CHECKPOINT)
    except DataError:
        return None  # reported when the run is opened
    mode: numerics.Mode | None = manifest["origin"].get("numerics") if manifest else None
    return mode
