"""Checks that events.jsonl and summary.json agree with the manifest."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refprotofl.core.errors import DataError
from refprotofl.experiment import Experiment, differences
from refprotofl.records.checkpoint import Progress
from refprotofl.records.events import Event, check_chain
from refprotofl.records.files import sha256
from refprotofl.records.safe_io import check_file, read_file
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
    if progress.round < experiment.rounds or not progress.accuracy:
        raise DataError(f"{path} belongs to a finished run, but this run is not finished: delete it and use --resume.")
    expected = build_summary(experiment, progress, manifest["state_digest"], found["full_model"]["parameters"])
    stored = {name: value for name, value in found.items() if name in expected}
    changed = differences(stored, dict(expected))
    if changed and json.dumps(stored, sort_keys=True) != json.dumps(expected, sort_keys=True):
        raise DataError(f"{path} does not follow from the run's manifest: {', '.join(changed)} was changed.")
    sealed = events[-1].get("summary") if events[-1]["event"] == "end" else None
    if sealed is not None and sealed != sha256(read_file(path)):
        raise DataError(f"{path} is not the file that the run wrote at its end: the hashes differ.")
