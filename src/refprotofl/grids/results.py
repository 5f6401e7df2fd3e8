"""What a finished run tells, small enough to be kept beside the code: summary, curve, and what it comes from."""

import json
import subprocess
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.basics.units import counted
from refprotofl.errors import DataError
from refprotofl.experiment import Experiment
from refprotofl.grids.cells import Cell, cell_name
from refprotofl.records.events import Event, read_events
from refprotofl.records.files import make_folders, write_whole
from refprotofl.records.inside import CHECKPOINT, read_json
from refprotofl.records.manifest import Origin, read_manifest
from refprotofl.records.summary import Summary, read_summary
from refprotofl.simulation.origin import changes, origin_of

LEFT_OUT = ("confusion",)  # as large as all the rest with a hundred classes


class Point(TypedDict):
    """An evaluation, and what had been sent until then."""

    round: int
    accuracy: dict[str, float | None]  # by protocol
    bytes: int  # up, down and once


class Result(TypedDict):
    schema: int
    version: str
    commit: str | None  # of the source tree that computed it, where it is one
    asked: str  # hash of the experiment before it was resolved against its data
    origin: Origin | None
    summary: Summary
    curve: list[Point]


_RESULT = TypeAdapter(Result)


def result_of(folder: Path, asked: Experiment) -> Result:
    """Of a finished run in its folder."""
    return {
        "schema": 1,
        "version": version("refprotofl"),
        "commit": _commit(),
        "asked": asked.hash,
        "origin": read_manifest(folder / CHECKPOINT).get("origin"),
        "summary": read_summary(folder / "summary.json"),
        "curve": curve_of(read_events(folder)),
    }


def curve_of(events: list[Event]) -> list[Point]:
    """Its points in the order of rounds; an evaluation stands before the round that it belongs to."""
    rounds = [event for event in events if event["event"] == "round"]
    sent = [sum(row["payload_bytes"] for row in event["traffic"] if row["purpose"] != "evaluation") for event in rounds]
    until = dict(zip((event["round"] for event in rounds), accumulate(sent), strict=True))
    scored = [event for event in events if event["event"] == "evaluation"]
    return [{"round": one["round"], "accuracy": one["accuracy"], "bytes": until[one["round"]]} for one in scored]


def kept_file(kept: Path, cell: Cell) -> Path:
    return kept / f"{cell_name(cell.experiment)}.json"


def keep(kept: Path, cell: Cell, result: Result) -> None:
    """Puts a result beside the others; without what is large."""
    make_folders(kept)
    small = {**result, "summary": {name: value for name, value in result["summary"].items() if name not in LEFT_OUT}}
    write_whole(kept_file(kept, cell), (json.dumps(small, separators=(",", ":")) + "\n").encode())


def read_kept(kept: Path, cell: Cell, data: Path | None) -> Result | None:
    """The kept result of this very experiment, if what it comes from is still the same."""
    path = kept_file(kept, cell)
    try:
        result = read_result(path)
    except FileNotFoundError:
        return None
    if result["asked"] != cell.experiment.hash:
        return None
    resolved = Experiment.parse(result["summary"]["experiment"])
    stored = result["origin"]
    return None if stored and changes(stored, origin_of(resolved, data), resolved) else result


def read_result(path: Path) -> Result:
    """As it stands in the file; DataError if it is not one."""
    try:
        result: Any = read_json(path)
        _RESULT.validate_python(result, strict=True)
    except (ValueError, RecursionError) as problem:  # pydantic's ValidationError is a ValueError
        parts = counted(problem.error_count(), "part") if isinstance(problem, ValidationError) else "no JSON"
        raise DataError(f"{path} is no kept result ({parts} of it); delete it, and the run is done again.") from None
    return cast(Result, result)


def _commit() -> str | None:
    """The commit of the source tree, with a + where files differ from it; None for an installed package."""
    try:
        said = [
            subprocess.run(["git", *command], cwd=Path(__file__).parent, capture_output=True, check=True, text=True)
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", "."])
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return said[0].stdout.strip() + ("+" if said[1].stdout.strip() else "")
