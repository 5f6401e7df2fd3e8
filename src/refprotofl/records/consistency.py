"""Whether what events.jsonl and summary.json tell is what the manifest knows."""

import json
from collections.abc import Iterator, Sequence
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
    "This shows what was changed by accident or in part. The hashes have no key: whoever rewrites the whole folder can "
    "compute them anew."
)


def check_told(folder: Path, experiment: Experiment, manifest: dict[str, Any], events: Sequence[Event]) -> list[str]:
    """DataError where they disagree; else what the answer rests on."""
    check_experiment(folder, experiment, manifest)
    _check_rounds(folder, manifest, events)
    _check_summary(folder, experiment, manifest, events)
    return list(_notes(folder, manifest, events))


def check_experiment(folder: Path, experiment: Experiment, manifest: dict[str, Any]) -> None:
    """A run that is being extended has more rounds than when its last round was committed."""
    run = manifest.get("run")
    if run is not None:
        planned = experiment.model_copy(update={"rounds": run["rounds"]})
        if planned.hash != run["experiment"] or run["rounds"] > experiment.rounds:
            raise DataError(f"{folder / 'experiment.json'} is not the experiment of the manifest: its hash is another.")
    if manifest["progress"]["round"] > experiment.rounds:
        raise DataError(f"{folder}: the manifest has more rounds than experiment.json.")


def _check_rounds(folder: Path, manifest: dict[str, Any], events: Sequence[Event]) -> None:
    path, last = folder / "events.jsonl", manifest["progress"]["round"]
    check_chain(folder, events)
    told = [event for event in events if event["event"] == "round"]
    if [event.get("round") for event in told] != list(range(1, last + 1)):
        raise DataError(f"{path} must tell the rounds 1 to {last} once each, in order; a line was added or removed.")
    if "chain" in manifest and told[-1].get("chain") != manifest["chain"]:
        raise DataError(f"{path}: round {last} is not the one that the manifest knows; its line was changed.")
    scored = [event for event in events if event["event"] == "evaluation"]
    known = manifest["progress"]["accuracy"]
    if _as_text(scored[-1] if scored else {}) != _as_text(known):
        raise DataError(f"{path}: the last evaluation is not the one that the manifest knows; its line was changed.")


def _as_text(event: Event) -> str:
    """As text, because a fact that is not a number is not even equal to itself."""
    return json.dumps({name: value for name, value in event.items() if name != "chain"})


def _check_summary(folder: Path, experiment: Experiment, manifest: dict[str, Any], events: Sequence[Event]) -> None:
    path, progress = folder / "summary.json", Progress.recorded(manifest)
    if not check_file(path):
        return
    found = read_summary(path)
    if progress.round < experiment.rounds or not progress.accuracy:
        raise DataError(f"{path} stands beside a run that is not finished: delete it and go on with --resume.")
    expected = build_summary(experiment, progress, manifest["state_digest"], found["full_model"]["parameters"])
    known = {name: value for name, value in expected.items() if name in found}  # an older one may lack some
    told = {name: value for name, value in found.items() if name in expected}
    changed = differences(told, known)
    if changed and json.dumps(told, sort_keys=True) != json.dumps(known, sort_keys=True):
        raise DataError(f"{path} is not what the run's manifest gives: {', '.join(changed)} was changed.")
    sealed = events[-1].get("summary") if events[-1]["event"] == "end" else None
    if sealed is not None and sealed != sha256(read_file(path)):
        raise DataError(f"{path} is not the file that the run wrote at its end: its hash is another.")


def _notes(folder: Path, manifest: dict[str, Any], events: Sequence[Event]) -> Iterator[str]:
    chained = sum("chain" in event for event in events)
    if not chained:
        yield "There is no chain on record: lines of events.jsonl before the last round are not checked."
    elif chained < len(events):
        yield f"The first {len(events) - chained} events were written without a chain."
    yield LIMIT
