"""The events are a chain and the summary is sealed: verify finds later changes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refprotofl.core.errors import DataError
from refprotofl.engines.local.store import read_state
from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.federation.models import known_digests
from refprotofl.records.atomic_files import sha256
from refprotofl.records.events import check_chain, read_events
from refprotofl.records.folder import read_experiment
from refprotofl.records.manifest import read_manifest, signed
from refprotofl.records.verify import Verified, verify_run


def verify(folder: Path) -> Verified:
    recorded = read_manifest(folder / "checkpoint").get("initial")
    return verify_run(folder, known_digests(read_experiment(folder), recorded), read_state)


def write_events(folder: Path, events: list[dict[str, Any]]) -> None:
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))


def test_every_line_follows_from_those_before_it(finished_copy: Path) -> None:
    head = sha256(b"")
    for event in read_events(finished_copy):
        chain = event.pop("chain")
        head = sha256((head + json.dumps(event)).encode())
        assert chain == head


def test_the_chain_continues_through_interruptions(cut_off: Path, tiny: Callable[..., Experiment]) -> None:
    run(tiny(), out=cut_off, resume=True)
    events = read_events(cut_off)
    assert [event["event"] for event in events][3] == "resume"
    check_chain(cut_off, events)
    assert len({event["run"] for event in events if "run" in event}) == 1
    assert verify(cut_off).recomputed


def test_an_edited_accuracy_in_the_summary_is_found(finished_copy: Path) -> None:
    path = finished_copy / "summary.json"
    summary = json.loads(path.read_text())
    summary["accuracy"]["personal"] = 0.99
    path.write_text(json.dumps(summary, indent=2) + "\n")
    with pytest.raises(DataError, match=r"summary\.json does not follow from the run's manifest: accuracy\.personal"):
        verify(finished_copy)


def test_an_edited_size_of_the_model_in_the_summary_is_found(finished_copy: Path) -> None:
    path = finished_copy / "summary.json"
    summary = json.loads(path.read_text())
    summary["full_model"]["parameters"] += 1
    path.write_text(json.dumps(summary, indent=2) + "\n")
    with pytest.raises(DataError, match="not the file that the run wrote at its end"):
        verify(finished_copy)


@pytest.mark.parametrize("number", range(6))
def test_an_edited_line_is_found(finished_copy: Path, number: int) -> None:
    events = read_events(finished_copy)
    events[number]["seconds"] = 0.125
    write_events(finished_copy, events)
    with pytest.raises(DataError, match=rf"line {number + 1} does not follow"):
        verify(finished_copy)


@pytest.mark.parametrize("number", range(5))
def test_a_removed_line_is_found(finished_copy: Path, number: int) -> None:
    events = read_events(finished_copy)
    del events[number]
    write_events(finished_copy, events)
    with pytest.raises(DataError, match=r"does not follow|lacks round 2"):
        verify(finished_copy)


def test_an_accuracy_that_was_edited_with_its_chain_is_found_by_the_manifest(finished_copy: Path) -> None:
    head, events = sha256(b""), read_events(finished_copy)
    events[1]["accuracy"]["personal"] = 0.99
    for event in events:
        del event["chain"]
        head = event["chain"] = sha256((head + json.dumps(event)).encode())
    write_events(finished_copy, events)
    with pytest.raises(DataError, match="round 2 is not the one in the manifest"):
        verify(finished_copy)


def test_another_experiment_next_to_the_manifest_is_found(finished_copy: Path, tiny: Callable[..., Experiment]) -> None:
    stored = read_experiment(finished_copy)
    other = stored.model_copy(update={"seed": 5})
    (finished_copy / "experiment.json").write_text(json.dumps({"hash": other.hash, **other.plain()}))
    with pytest.raises(DataError, match="not the experiment of the manifest"):
        verify(finished_copy)


def test_a_resume_does_not_make_an_edited_line_one_of_ours(cut_off: Path, tiny: Callable[..., Experiment]) -> None:
    events = read_events(cut_off)
    events[0]["workers"] = 9  # as long as it was
    write_events(cut_off, events)
    run(tiny(), out=cut_off, resume=True)
    with pytest.raises(DataError, match="line 1 does not follow"):
        verify(cut_off)


@pytest.mark.parametrize("name", ["run", "origin", "initial", "chain", "events_size"])
def test_a_manifest_without_one_of_its_entries_is_refused(finished_copy: Path, name: str) -> None:
    manifest = read_manifest(finished_copy / "checkpoint")
    del manifest[name]
    (finished_copy / "checkpoint" / "manifest.json").write_bytes(signed(manifest))
    with pytest.raises(DataError, match=f"is not a manifest: {name}: Field required"):
        verify(finished_copy)


def test_events_without_a_chain_are_refused(finished_copy: Path) -> None:
    write_events(finished_copy, [{**event, "chain": None} for event in read_events(finished_copy)])
    with pytest.raises(DataError, match="line 1 does not follow"):
        verify(finished_copy)


def test_clients_that_never_trained_count_as_on_record(tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    folder = run(tiny(clients=3, fraction=0.34, rounds=1), out=tmp_path / "run").folder
    assert verify(folder).clients_with_state == 1
    manifest = read_manifest(folder / "checkpoint")
    manifest["initial"] = {"mlp": "0" * 64}
    (folder / "checkpoint" / "manifest.json").write_bytes(signed(manifest))
    with pytest.raises(DataError, match="states of round 1 have digest"):
        verify(folder)
