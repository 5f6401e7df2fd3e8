"""What a checkpoint's manifest holds, and the one reader that checks it.

The checkpoints that are kept: each has a `manifest-N.json`, beside `manifest.json` for where the run stands.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.core import numerics
from refprotofl.core.errors import DataError
from refprotofl.records.files import sha256
from refprotofl.records.safe_io import CHECKPOINT, check_folder, parse_json, read_file
from refprotofl.wire.ledger import Totals

SCHEMA = 2
SERVER_FILES = ("server", "observed")  # what a manifest names them by

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]


class Evaluated(TypedDict):
    """The latest `evaluation` event."""

    round: Count
    accuracy: dict[str, float | None]
    per_client: dict[str, list[float | None]]
    clients: list[Count]
    trained_clients: Count
    facts: NotRequired[dict[str, Any]]


class Seconds(TypedDict):
    total: float
    train: float
    evaluate: float


class Passed(TypedDict):
    """`Progress` as it is written."""

    round: Annotated[int, Field(ge=1)]
    communication: Totals
    accuracy: Evaluated | Annotated[dict[str, Any], Field(max_length=0)]  # none before the first evaluation
    participations: Count
    steps: NotRequired[Count | None]
    moves: NotRequired[dict[str, list[float]]]
    seconds: Seconds


class ServerFile(TypedDict):
    file: Annotated[str, Field(pattern=r"^server-\d{1,9}\.safetensors$")]
    digest: Digest


class ObservedFile(TypedDict):
    file: Annotated[str, Field(pattern=r"^observed-\d{1,9}\.safetensors$")]
    digest: Digest


class ClientRecord(TypedDict):
    """The engine's own, but for the digest."""

    digest: Digest


class Told(TypedDict):
    event: str


class RunMark(TypedDict):
    """Which run this is, and what it was planned as when the round was committed."""

    id: str
    experiment: Digest
    rounds: Annotated[int, Field(ge=1)]


class Origin(TypedDict):
    """What beside the experiment decides the numbers; None where it is not known."""

    results: int
    data: str | None
    code: dict[str, str]  # by module:attribute
    numerics: NotRequired[Literal["portable", "native"]]  # as computed; older versions did not record it


class Marks(TypedDict, total=False):
    """What a manifest of an older version lacks."""

    run: RunMark
    origin: Origin
    initial: dict[str, Digest]  # of a client that never trained, by its backbone's name
    chain: Digest  # of the round's last event


class Rollback(TypedDict):
    """That the run went back to this round: said by its manifest until the next one is committed."""

    round: Annotated[int, Field(ge=1)]
    before: Annotated[int, Field(ge=1)]  # the round that it stood at
    events: Annotated[str, Field(pattern=r"^events\.\d{1,9}\.jsonl$")]  # where what was told since then is now
    reason: str


class Manifest(Marks):
    schema: int
    progress: Passed
    state_digest: Digest
    server: ServerFile
    observed: NotRequired[ObservedFile]
    clients: dict[Annotated[str, Field(pattern=r"^(0|[1-9]\d{0,8})$")], ClientRecord]
    events: Annotated[list[Told], Field(min_length=1)]
    told: NotRequired[Count]  # size of events.jsonl with the round's own events in it
    rollback: NotRequired[Rollback]


_MANIFEST = TypeAdapter(Manifest)


CURRENT = "manifest.json"


def kept_name(round: int) -> str:
    """Of the same manifest, beside later ones."""
    return f"manifest-{round}.json"


def read_manifest(folder: Path, name: str = CURRENT) -> dict[str, Any]:
    """The manifest in this checkpoint, or nothing before the first committed round."""
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
        raise DataError(f"The checkpoint's {path} is damaged: its contents do not have the hash that it names.")
    if manifest.get("schema") != SCHEMA:
        raise DataError(f"The checkpoint's {path} has schema {manifest.get('schema')!r}; this version reads {SCHEMA}.")
    try:
        _MANIFEST.validate_python(manifest, strict=True)  # checked only: what it returns lacks the engine's own keys
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"The checkpoint's {path} is no manifest: {where}: {first['msg']}.") from None
    return manifest


def signed(manifest: dict[str, Any]) -> bytes:
    """The manifest's file, with the hash of all the rest."""
    body = json.dumps(manifest)
    return f'{{"sha256": "{sha256(body.encode())}", {body[1:]}'.encode()


KEPT = re.compile(r"manifest-(0|[1-9]\d{0,8})\.json")


def kept_rounds(folder: Path) -> list[int]:
    """Those with a manifest of their own, the newest first."""
    if not check_folder(folder):
        return []
    found = [KEPT.fullmatch(path.name) for path in folder.iterdir()]
    return sorted((int(match[1]) for match in found if match), reverse=True)


def readable_manifest(folder: Path) -> dict[str, Any]:
    """The newest that can be read, for what all manifests of a run agree in; nothing where there is none."""
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
    """Return the numerics that the run in this folder was computed with; None before its first committed round.

    Versions that recorded none computed natively.
    """
    try:
        manifest = readable_manifest(folder / CHECKPOINT)
    except DataError:
        return None  # reported when the run is opened
    mode: numerics.Mode | None = manifest.get("origin", {}).get("numerics", "native") if manifest else None
    return mode
