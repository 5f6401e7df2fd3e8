"""What a finished run tells, small enough to be kept beside the code: summary, curve, and what it comes from."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NotRequired, cast

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.core.errors import DataError
from refprotofl.experiment import Experiment, differences
from refprotofl.federation.provenance import changes, origin_of
from refprotofl.federation.resolution import prepare, resolve_alike
from refprotofl.records.atomic_files import make_folders, write_whole
from refprotofl.records.events import Event, read_events, read_traffic
from refprotofl.records.manifest import Origin, read_manifest
from refprotofl.records.safe_io import CHECKPOINT, read_json
from refprotofl.records.summary import Summary, check_summary, read_summary
from refprotofl.studies.cells import Cell, cell_name

LEFT_OUT = ("confusion",)  # as large as all the rest with a hundred classes


class Point(TypedDict):
    """An evaluation, and what had been sent until then."""

    round: int
    accuracy: dict[str, float | None]  # by protocol
    bytes: int  # up, down and once


class Result(TypedDict):
    schema: Literal[1]
    version: str  # of refprotofl, when the run last went on
    commit: str | None  # of the source tree that computed it; None where it is not known
    asked: str  # hash of the experiment before it was resolved against its data
    numerics: NotRequired[str | None]  # how it was computed; None or absent where it is not recorded
    cpu_capability: NotRequired[str | None]  # the instruction set that torch used, such as AVX2
    origin: Origin | None
    summary: Summary
    curve: list[Point]


_RESULT = TypeAdapter(Result)


def result_of(folder: Path, asked: Experiment, summary: Summary | None = None) -> Result:
    """Of a finished run in its folder; `summary` if it is at hand, as another process may already be at more rounds.

    All of it stands in the folder, so whoever keeps the result of a run keeps the same.
    """
    events = read_events(folder)
    told = summary or read_summary(folder / "summary.json")
    try:
        curve = [point for point in curve_of(events) if point["round"] <= told["rounds_done"]]
        machine = _machine(events, told["rounds_done"])
    except (LookupError, TypeError, ValueError):
        raise DataError(f"{folder / 'events.jsonl'} does not tell what its evaluations belong to.") from None
    origin = read_manifest(folder / CHECKPOINT).get("origin")
    mode = None if origin is None else origin.get("numerics")
    return {
        "schema": 1,
        "version": str(machine.get("refprotofl", "unknown")),
        "commit": str(machine["commit"]) if "commit" in machine else None,
        "asked": asked.hash,
        "numerics": mode,
        "cpu_capability": str(machine["cpu_capability"]) if mode is not None and "cpu_capability" in machine else None,
        "origin": origin,
        "summary": told,
        "curve": curve,
    }


def curve_of(events: list[Event]) -> list[Point]:
    """Its points in the order of rounds; an evaluation stands before the round that it belongs to.

    LookupError, TypeError or ValueError if the events are not those of a run of ours.
    """
    rounds = [event for event in events if event["event"] == "round"]
    sent = [
        sum(row["payload_bytes"] for row in read_traffic(event) if row["purpose"] != "evaluation") for event in rounds
    ]
    until = dict(zip((event["round"] for event in rounds), accumulate(sent), strict=True))
    scored = [event for event in events if event["event"] == "evaluation"]
    return [{"round": one["round"], "accuracy": one["accuracy"], "bytes": until[one["round"]]} for one in scored]


def _machine(events: list[Event], rounds: int) -> dict[str, Any]:
    """What the last of so many rounds was computed by; nothing is known of it where an older version did not tell."""
    before = [event["machine"] for event in events if "machine" in event and event.get("rounds_done", 0) < rounds]
    return before[-1] if before and isinstance(before[-1], dict) else {}


def count_numerics(results: Iterable[Result]) -> str:
    """Return how many results were computed in which mode, such as "3 portable, 60 unrecorded"."""
    counts = Counter(result.get("numerics") or "unrecorded" for result in results)
    return ", ".join(f"{number} {mode}" for mode, number in sorted(counts.items()))


def kept_file(kept: Path, cell: Cell) -> Path:
    return kept / f"{cell_name(cell.experiment)}.json"


def keep(kept: Path, cell: Cell, result: Result) -> None:
    """Puts a result beside the others; without what is large."""
    make_folders(kept)
    small = {**result, "summary": {name: value for name, value in result["summary"].items() if name not in LEFT_OUT}}
    write_whole(kept_file(kept, cell), (json.dumps(small, separators=(",", ":")) + "\n").encode())


def read_kept(kept: Path, cell: Cell, data: Path | None) -> Result | None:
    """The kept result of this very experiment, if what it comes from is still the same.

    It may come from anyone: nothing that it names is looked for before it is what was asked for.
    """
    path = kept_file(kept, cell)
    try:
        result = read_result(path)
    except FileNotFoundError:
        return None
    if result["asked"] != cell.experiment.hash:
        return None
    resolved = Experiment.parse(result["summary"]["experiment"])
    wanted = resolve_alike(prepare(cell.experiment), resolved)
    other = differences(resolved.plain(), wanted.plain())
    if other:
        raise _no_result(path, f"it is of another experiment than it says, which differs in {', '.join(other)}")
    stored = result["origin"]
    now = origin_of(resolved, data, mode=cell.experiment.numerics)
    return None if stored and changes(stored, now, resolved) else result


def read_result(path: Path) -> Result:
    """As it stands in the file; DataError if it is not one, FileNotFoundError if there is none."""
    try:
        found: Any = read_json(path)
        _RESULT.validate_python(found, strict=True)
        result = cast(Result, found)
        _check_numbers(check_summary(result["summary"]), result["curve"])
    except FileNotFoundError:
        raise
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        raise _no_result(path, f"{'.'.join(map(str, first['loc'])) or 'all of it'}: {first['msg']}") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise _no_result(path, str(problem)) from None
    return result


def _check_numbers(summary: Summary, curve: list[Point]) -> None:
    """ValueError where an accuracy is no share, or where the run is not a whole one of its experiment."""
    experiment = Experiment.parse(summary["experiment"])
    if experiment.input is None or experiment.hash != summary["experiment_hash"]:
        raise ValueError("its experiment does not have the hash that it names")
    if summary["rounds_done"] != experiment.rounds:
        raise ValueError(f"it tells of {summary['rounds_done']} rounds, its experiment of {experiment.rounds}")
    scored = [summary["accuracy"], *(point["accuracy"] for point in curve)]
    shares = [share for one in scored for share in one.values()]
    shares += [share for one in summary["accuracy_per_client"].values() for share in one]
    if not all(share is None or 0 <= share <= 1 for share in shares):
        raise ValueError("an accuracy in it is not between 0 and 1")
    if not all(math.isfinite(seconds) for seconds in cast(dict[str, float], summary["seconds"]).values()):
        raise ValueError("its seconds are no numbers")


def _no_result(path: Path, reason: str) -> DataError:
    return DataError(f"{path} is no kept result ({reason.rstrip('.')}); delete it, and the run is done again.")
