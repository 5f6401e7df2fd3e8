"""The checkpoint that a run resumes from, and the rollback to one that is not the newest."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refprotofl.core import DataError, InputError
from refprotofl.records.atomic_files import write_whole
from refprotofl.records.events import as_text, whole_lines
from refprotofl.records.folder import RunFolder
from refprotofl.records.manifest import (
    CURRENT,
    SERVER_FILES,
    Rollback,
    kept_name,
    kept_rounds,
    read_manifest,
    readable_manifest,
    signed,
)
from refprotofl.records.safe_io import check_file, read_file
from refprotofl.records.state_files import load_state

MOVED = "events.{}.jsonl"

CheckClient = Callable[[Path, dict[str, Any]], object]  # by checkpoint folder and record; DataError if damaged


@dataclass(frozen=True)
class Chosen:
    """The checkpoint to resume from, empty where no round is committed; and the reason if it is not the newest."""

    manifest: dict[str, Any]
    reason: str = ""


def choose(run: RunFolder, wanted: int | None, check_client: CheckClient) -> Chosen:
    """Return the newest intact checkpoint, or that of round `wanted`; raise DataError if there is none."""
    folder = run.checkpoint
    if wanted is not None:
        return Chosen(_wanted(folder, wanted, check_client), "requested by --from-round")
    rounds, first = kept_rounds(folder), None
    try:
        current = read_manifest(folder)
        if not current and not _has_rounds(run):
            return Chosen({})
        if not current:
            raise DataError(
                f"The checkpoint's {folder / CURRENT} is missing, but {run.events.path} has committed rounds."
            )
        rounds = [round for round in rounds if round < current["progress"]["round"]]  # later ones were never committed
        check_whole(folder, current, check_client)
        return Chosen(current)
    except DataError as problem:
        first = problem
    for round in rounds:
        try:
            manifest = read_manifest(folder, kept_name(round))
            check_whole(folder, manifest, check_client)
        except DataError:
            continue
        return Chosen(manifest, str(first))
    raise first


def _has_rounds(run: RunFolder) -> bool:
    return any(event["event"] == "round" for event in whole_lines(run.events.later(0)))


def _wanted(folder: Path, wanted: int, check_client: CheckClient) -> dict[str, Any]:
    newest = readable_manifest(folder)
    last = newest["progress"]["round"] if newest else wanted
    rounds = [round for round in kept_rounds(folder) if round <= last]  # later ones were never committed
    if wanted not in rounds:
        available = f"kept are {', '.join(map(str, sorted(rounds)))}" if rounds else "none is kept"
        raise InputError(f"--from-round {wanted}: there is no checkpoint of that round; {available}.")
    manifest = read_manifest(folder, kept_name(wanted))
    check_whole(folder, manifest, check_client)
    return manifest


def check_whole(folder: Path, manifest: dict[str, Any], check_client: CheckClient) -> None:
    """Raise DataError if a state that the manifest names is missing or damaged."""
    for named in (manifest[name] for name in SERVER_FILES if name in manifest):
        load_state(folder / named["file"], named["digest"])
    for record in manifest["clients"].values():
        check_client(folder, record)


def go_back(run: RunFolder, chosen: Chosen) -> Rollback | None:
    """Make the chosen checkpoint the current one; return the rollback, if later rounds are left behind.

    Later events are moved to a separate file first, so that a crash at any time loses nothing.
    """
    manifest = chosen.manifest
    round = manifest["progress"]["round"]
    later = _later_events(run, manifest)
    left = [event["round"] for event in whole_lines(later) if event["event"] == "round"]
    rollback: Rollback | None = None
    if left:
        run.drop_summary()
        moved = _put_aside(run.path, later)
        rollback = {"round": round, "before": max(left), "events": moved, "reason": chosen.reason}
    elif "rollback" in manifest:
        rollback = manifest["rollback"]
    bare = {name: value for name, value in manifest.items() if name != "rollback"}
    write_whole(run.checkpoint / CURRENT, signed({**bare, "rollback": rollback} if rollback else bare))
    return rollback


def _later_events(run: RunFolder, manifest: dict[str, Any]) -> bytes:
    """Return the lines of later rounds, including a round that was committed but not yet appended."""
    later = run.events.later(manifest["events_size"])
    try:
        newest = read_manifest(run.checkpoint)
    except DataError:
        return later
    if not newest or newest["progress"]["round"] <= manifest["progress"]["round"]:
        return later
    last = as_text(newest["events"])
    return later if last in later else later + last


def _put_aside(folder: Path, later: bytes) -> str:
    """Write the lines to a separate file and return its name; after a crash it is the same file."""
    number = 1
    while check_file(folder / MOVED.format(number)):
        if read_file(folder / MOVED.format(number)) == later:
            return MOVED.format(number)
        number += 1
    write_whole(folder / MOVED.format(number), later)
    return MOVED.format(number)
