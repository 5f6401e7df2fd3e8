"""Results of finished runs, one line of JSON each: the summary, the curve, and what the numbers come from."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NotRequired, cast

import filelock
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.core import DataError, InputError
from refprotofl.experiment import Experiment, differences
from refprotofl.federation import origin_of, prepare, resolve_alike
from refprotofl.federation.provenance import changes
from refprotofl.records import (
    Event,
    Origin,
    Summary,
    check_file,
    check_summary,
    make_folders,
    parse_json,
    read_events,
    read_file,
    read_manifest,
    read_summary,
    read_traffic,
    write_whole,
)
from refprotofl.records.safe_io import CHECKPOINT
from refprotofl.studies.trials import Trial

CELLS = "cells.jsonl"  # the file's name in the folder of a study
LEFT_OUT = ("confusion",)  # as large as all the rest with a hundred classes


class Point(TypedDict):
    """An evaluation, and what had been sent until then."""

    round: int
    accuracy: dict[str, float | None]  # by protocol
    bytes: int  # up, down and once
    seconds: NotRequired[float]  # of all rounds until then; absent in kept results that do not record it
    subset: NotRequired[int]  # of the test samples, where not all were scored


class Result(TypedDict):
    """The result of a run, in the order of its line."""

    schema: Literal[1]
    asked: str  # hash of the experiment before it was resolved against its data
    resolved: dict[str, Any]  # by dotted key of the summary's experiment: values before, where resolving changed them
    version: str  # of refprotofl, when the run was last resumed
    commit: str | None  # of the source tree that computed it; None where it is not known
    numerics: str | None  # the mode that it was computed in; None where it is not recorded
    cpu_capability: str | None  # the instruction set that torch used, such as AVX2; None where it is not recorded
    origin: Origin | None
    summary: Summary
    curve: list[Point]


_RESULT = TypeAdapter(Result)


def result_of(folder: Path, asked: Experiment, summary: Summary | None = None) -> Result:
    """Return the result of a finished run in its folder.

    `summary`: of the run, if it is at hand; another process may have continued the run since.
    """
    events = read_events(folder)
    found = summary or read_summary(folder / "summary.json")
    try:
        curve = [point for point in curve_of(events) if point["round"] <= found["rounds_done"]]
        machine = _machine(events, found["rounds_done"])
    except (LookupError, TypeError, ValueError):
        raise DataError(f"{folder / 'events.jsonl'} has evaluations without their rounds or traffic.") from None
    origin = read_manifest(folder / CHECKPOINT).get("origin")
    mode = None if origin is None else origin.get("numerics")
    return {
        "schema": 1,
        "asked": asked.hash,
        "resolved": _resolved(found["experiment"], asked.plain()),
        "version": str(machine.get("refprotofl", "unknown")),
        "commit": str(machine["commit"]) if "commit" in machine else None,
        "numerics": mode,
        "cpu_capability": str(machine["cpu_capability"]) if mode is not None and "cpu_capability" in machine else None,
        "origin": origin,
        "summary": found,
        "curve": curve,
    }


def curve_of(events: list[Event]) -> list[Point]:
    """Return the evaluations in the order of rounds; in the events each precedes the round that it belongs to.

    Raise LookupError, TypeError or ValueError if these are not the events of a run.
    """
    rounds = [event for event in events if event["event"] == "round"]
    sent = [
        sum(row["payload_bytes"] for row in read_traffic(event) if row["purpose"] != "evaluation") for event in rounds
    ]
    seconds = [float(event.get("seconds", 0.0)) for event in rounds]
    until = {
        event["round"]: (total, time)
        for event, total, time in zip(rounds, accumulate(sent), accumulate(seconds), strict=True)
    }
    scored = [event for event in events if event["event"] == "evaluation"]
    return [_point(one, *until[one["round"]]) for one in scored]


def _point(evaluation: Event, sent: int, seconds: float) -> Point:
    number, accuracy = evaluation["round"], evaluation["accuracy"]
    point: Point = {"round": number, "accuracy": accuracy, "bytes": sent, "seconds": seconds}
    return {**point, "subset": evaluation["subset"]} if "subset" in evaluation else point


def _machine(events: list[Event], rounds: int) -> dict[str, Any]:
    """Return the machine and versions that computed the last of this many rounds; empty where they are not recorded."""
    before = [event["machine"] for event in events if "machine" in event and event.get("rounds_done", 0) < rounds]
    return before[-1] if before and isinstance(before[-1], dict) else {}


def _resolved(experiment: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    return {key: _at(asked, key) for key in differences(experiment, asked)}


def _at(plain: dict[str, Any], key: str) -> Any:
    table, _, rest = key.partition(".")
    return _at(plain.get(table) or {}, rest) if rest else plain.get(table)


def asked_experiment(result: Result) -> Experiment:
    """Return the experiment as it was before it was resolved against its data."""
    plain: dict[str, Any] = json.loads(json.dumps(result["summary"]["experiment"]))
    for key, value in result["resolved"].items():
        *tables, last = key.split(".")
        table = plain
        for name in tables:
            table = table.setdefault(name, {})
        if value is None:
            table.pop(last, None)  # the default of such a key
        else:
            table[last] = value
    return Experiment.parse(plain)


def count_numerics(results: Iterable[Result]) -> str:
    """Return how many results were computed in which mode, such as "3 portable, 60 unrecorded"."""
    counts = Counter(result["numerics"] or "unrecorded" for result in results)
    return ", ".join(f"{number} {mode}" for mode, number in sorted(counts.items()))


@dataclass(frozen=True)
class KeptResults:
    """Results in a file that new ones are added to, and in other files that are only read.

    Several processes may add to one file: it is replaced as a whole, under a lock.
    """

    file: Path
    others: tuple[Path, ...] = ()

    def find(self, trial: Trial, data: Path | None) -> Result | None:
        """Return the result of this very experiment, if its data, code and numerics are still the same.

        A file may come from anyone: nothing that it names is looked up before it is what was asked for.
        """
        for file in (self.file, *self.others):
            line = read_lines(file).get(trial.hash)
            result = None if line is None else _read_line(file, line)
            if result is not None and _is_current(file, result, trial, data):
                return result
        return None

    def address(self, trial: Trial) -> Path | None:
        """Return where `find_result` finds the trial's result; None where there is none."""
        asked = trial.hash
        return next((file / asked for file in (self.file, *self.others) if asked in read_lines(file)), None)

    def add(self, result: Result) -> None:
        """Add a result without its large parts; it replaces an earlier one of the same experiment."""
        small = {
            **result,
            "summary": {name: value for name, value in result["summary"].items() if name not in LEFT_OUT},
        }
        make_folders(self.file.parent)
        lock = self.file.with_name(f".{self.file.name}.lock")
        check_file(lock)  # it is opened for writing
        with filelock.FileLock(lock, mode=0o644):
            lines = {**read_lines(self.file), result["asked"]: json.dumps(small, separators=(",", ":"))}
            ordered = sorted(lines.values(), key=lambda line: _place(json.loads(line)))
            write_whole(self.file, "".join(f"{line}\n" for line in ordered).encode())


def _place(result: Result) -> tuple[str, str, int, str]:
    """Return what lines are sorted by."""
    experiment = result["summary"]["experiment"]
    return experiment["method"], experiment["dataset"], experiment["seed"], result["asked"]


def find_cells(folder: Path) -> tuple[Path, ...]:
    """Return the files of results in a folder and in the folders of its studies."""
    if not folder.is_dir():
        raise InputError(f"--results {folder}: there is no such folder.")
    return tuple(path for path in (folder / CELLS, *sorted(folder.glob(f"*/{CELLS}"))) if path.exists())


def read_lines(file: Path) -> Mapping[str, str]:
    """Return a file's lines by the hash of the experiment that was asked for; none where there is no file."""
    if not check_file(file):
        return {}
    found = file.stat()
    return _read_lines(file, (found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=32)
def _read_lines(file: Path, version: tuple[int, ...]) -> Mapping[str, str]:
    """Read the file once for each version of it."""
    try:
        lines = read_file(file).decode().split("\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"{file} cannot be read: {problem}.") from None
    return {_asked(file, number, line): line for number, line in enumerate(lines, 1) if line.strip()}


def _asked(file: Path, number: int, line: str) -> str:
    try:
        asked = parse_json(line)["asked"]
    except (ValueError, LookupError, TypeError):
        raise _no_result(f"line {number} of {file}", "it does not say which experiment it is of") from None
    return str(asked)


def find_result(address: Path) -> Result:
    """Return the result at FILE/HASH, as it is in the file; DataError where it is not one."""
    line = read_lines(address.parent).get(address.name)
    if line is None:
        raise DataError(f"{address.parent} has no result of the experiment {address.name}.")
    return _read_line(address.parent, line)


def _read_line(file: Path, line: str) -> Result:
    found = parse_json(line)
    where = f"the line of {str(found['asked'])[:12]} in {file}"
    try:
        _RESULT.validate_python(found, strict=True)
        result = cast(Result, found)
        _check_numbers(check_summary(result["summary"]), result["curve"])
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        raise _no_result(where, f"{'.'.join(map(str, first['loc'])) or 'all of it'}: {first['msg']}") from None
    except (ValueError, RecursionError) as problem:
        raise _no_result(where, str(problem)) from None
    return result


def _is_current(file: Path, result: Result, trial: Trial, data: Path | None) -> bool:
    resolved = Experiment.parse(result["summary"]["experiment"])
    wanted = resolve_alike(prepare(trial.experiment), resolved)
    if resolved.hash != wanted.hash:
        other = differences(resolved.plain(), wanted.plain())
        where = f"the line of {result['asked'][:12]} in {file}"
        raise _no_result(where, f"its experiment is not the one it names: they differ in {', '.join(other)}")
    stored = result["origin"]
    now = origin_of(resolved, data, mode=trial.experiment.numerics)
    return not (stored and changes(stored, now, resolved))


def _check_numbers(summary: Summary, curve: Sequence[Point]) -> None:
    """Raise ValueError where an accuracy is not a share, or the run did not finish its experiment."""
    experiment = Experiment.parse(summary["experiment"])
    if experiment.input is None or experiment.hash != summary["experiment_hash"]:
        raise ValueError("its experiment does not have the hash that it names")
    stopped = summary.get("stop", {}).get("reason", "rounds") != "rounds"
    if summary["rounds_done"] != experiment.rounds and not stopped:
        raise ValueError(f"it has {summary['rounds_done']} rounds, its experiment {experiment.rounds}")
    scored = [summary["accuracy"], *(point["accuracy"] for point in curve)]
    shares = [share for one in scored for share in one.values()]
    shares += [share for one in summary["accuracy_per_client"].values() for share in one]
    if not all(share is None or 0 <= share <= 1 for share in shares):
        raise ValueError("an accuracy in it is not between 0 and 1")
    if not all(math.isfinite(seconds) for seconds in cast(dict[str, float], summary["seconds"]).values()):
        raise ValueError("its seconds are not finite")


def _no_result(where: str, reason: str) -> DataError:
    sentence = f"{where} is not a kept result ({reason.rstrip('.')}); delete it, and the run is repeated."
    return DataError(sentence[0].upper() + sentence[1:])
