"""Results that are kept in place of runs: what they contain, and that a changed one is refused."""

import json
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.studies.conftest import TINY

from refprotofl.core import numerics
from refprotofl.core.errors import DataError
from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, run
from refprotofl.records.machine import source_commit
from refprotofl.studies.results import KeptResults, asked_experiment, find_cells, find_result, read_lines, result_of
from refprotofl.studies.rows import Row
from refprotofl.studies.trials import Base, Trial


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trial, RunResult]:
    cell = Base(None, "quick", TINY).trial(Row("fedproto", "fedproto"), 3, tmp_path_factory.mktemp("ran"))
    return cell, run(cell.experiment, out=cell.folder)


@pytest.fixture
def kept(ran: tuple[Trial, RunResult], tmp_path: Path) -> KeptResults:
    cell, finished = ran
    results = KeptResults(tmp_path / "study" / "cells.jsonl")
    results.add(result_of(finished.folder, cell.experiment))
    return results


def test_the_curve_ends_where_the_summary_does(ran: tuple[Trial, RunResult]) -> None:
    cell, finished = ran
    result = result_of(finished.folder, cell.experiment)
    first, last = result["curve"]
    assert (first["round"], last["round"]) == (1, 2)
    assert last["accuracy"] == finished.summary["accuracy"]
    sent = finished.summary["communication"]
    once, both_ways = sent["one_off"]["payload_bytes"], [sent["uplink"], sent["downlink"]]
    assert last["bytes"] == once + sum(one["payload_bytes"] for one in both_ways)
    # Two rounds alike, but that no prototypes go down before any came up.
    assert 0 < last["bytes"] - first["bytes"] <= sum(one["payload_bytes"] for one in both_ways)
    assert once < first["bytes"] < last["bytes"]


def test_what_is_kept_is_the_result_without_its_largest_part(ran: tuple[Trial, RunResult], kept: KeptResults) -> None:
    cell, finished = ran
    found = kept.find(cell, None)
    whole = result_of(finished.folder, cell.experiment)
    assert "confusion" in whole["summary"]
    summary = {name: value for name, value in whole["summary"].items() if name != "confusion"}
    assert found == {**whole, "summary": summary}
    assert kept.find(Trial("x", cell.experiment.model_copy(update={"seed": 4}), cell.folder), None) is None


def test_a_result_says_what_was_asked_before_the_data_filled_it_in(
    ran: tuple[Trial, RunResult], kept: KeptResults
) -> None:
    """So it stays valid when a default changes: its line can be read again and get another hash."""
    cell, _ = ran
    found = kept.find(cell, None)
    assert found is not None
    assert found["resolved"]["input"] is None
    assert asked_experiment(found).hash == cell.experiment.hash == found["asked"]
    assert Experiment.parse(found["summary"]["experiment"]).hash != found["asked"]


def test_a_result_of_another_experiment_does_not_count(ran: tuple[Trial, RunResult], kept: KeptResults) -> None:
    cell, _ = ran
    kept.file.write_text(kept.file.read_text().replace(cell.experiment.hash, "0" * 64))
    assert kept.find(cell, None) is None


def test_lines_are_in_a_stable_order_and_one_experiment_has_one(
    ran: tuple[Trial, RunResult], kept: KeptResults
) -> None:
    found = kept.find(ran[0], None)
    assert found is not None
    wanted = [("a", "z", 2), ("b", "y", 2), ("b", "y", 10), ("b", "z", 0)]
    for number, (method, dataset, seed) in [*enumerate(wanted)][::-1]:
        experiment = {**found["summary"]["experiment"], "method": method, "dataset": dataset, "seed": seed}
        summary: Any = {**found["summary"], "experiment": experiment}
        for _ in range(2):
            kept.add({**found, "asked": f"{number}", "summary": summary})
    assert [*read_lines(kept.file)] == ["0", "1", "2", "3", found["asked"]]
    text = kept.file.read_text()
    kept.add(found)
    assert kept.file.read_text() == text


def test_results_of_other_studies_are_found_and_only_the_own_file_is_written(
    ran: tuple[Trial, RunResult], kept: KeptResults, tmp_path: Path
) -> None:
    cell, _ = ran
    own = KeptResults(tmp_path / "other" / "cells.jsonl", find_cells(tmp_path))
    assert own.others == (kept.file,)
    found = own.find(cell, None)
    assert found is not None
    address = own.address(cell)
    assert address == kept.file / cell.experiment.hash
    assert find_result(address) == found
    before = kept.file.read_bytes()
    own.add(found)
    assert own.file.read_bytes() == before == kept.file.read_bytes()
    assert own.address(cell) == own.file / cell.experiment.hash


def rehashed(result: Any, **keys: Any) -> None:
    """Another experiment in the summary, with the hash that belongs to it."""
    summary = result["summary"]
    summary["experiment"] |= keys
    summary["experiment_hash"] = Experiment.parse(summary["experiment"]).hash


EDITS: dict[str, tuple[Callable[[Any], object], str]] = {
    "schema": (lambda one: one.update(schema=2), "schema: Input should be 1"),
    "missing": (lambda one: one["summary"].pop("communication"), "summary.communication: Field required"),
    "accuracy": (lambda one: one["summary"]["accuracy"].update(personal=1.5), "not between 0 and 1"),
    "no number": (lambda one: one["curve"][0]["accuracy"].update(personal=float("nan")), "not between 0 and 1"),
    "client": (lambda one: one["summary"]["accuracy_per_client"]["own"].pop(), "not have all 2 clients"),
    "seconds": (lambda one: one["summary"]["seconds"].update(train=float("inf")), "seconds are not finite"),
    "hash": (lambda one: one["summary"]["experiment"].update(alpha=0.1), "does not have the hash"),
    "rounds": (lambda one: one["summary"].update(rounds_done=1), "it has 1 rounds, its experiment 2"),
    "key": (lambda one: one["summary"]["experiment"].update(alfa=1), "alfa"),
    "input": (lambda one: rehashed(one, input=None), "does not have the hash"),
    "experiment": (
        lambda one: rehashed(one, alpha=0.1),
        "its experiment is not the one it names: they differ in alpha",
    ),
    "code": (lambda one: rehashed(one, method="evil_module:Method"), "they differ in"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_changed_result_is_refused_and_runs_nothing(
    ran: tuple[Trial, RunResult], kept: KeptResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: str
) -> None:
    cell, _ = ran
    (tmp_path / "evil_module.py").write_text("raise SystemExit('it ran')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = json.loads(kept.file.read_text())
    change, sentence = EDITS[edit]
    change(result)
    kept.file.write_text(json.dumps(result))
    with pytest.raises(DataError) as refused:
        kept.find(cell, None)
    assert sentence in str(refused.value)
    assert f"The line of {cell.experiment.hash[:12]} in {kept.file} is not a kept result (" in str(refused.value)
    assert "delete it, and the run is repeated" in str(refused.value)
    assert "evil_module" not in sys.modules


@pytest.mark.parametrize("text", ["{", "[]", "null", "[" * 100_000, '{"schema": 1}'])
def test_a_line_that_is_no_result_is_named(ran: tuple[Trial, RunResult], kept: KeptResults, text: str) -> None:
    with kept.file.open("a") as file:
        file.write(f"\n{text}\n")
    with pytest.raises(DataError, match=r"Line 3 of .*cells\.jsonl is not a kept result"):
        kept.find(ran[0], None)


def test_no_link_is_followed(ran: tuple[Trial, RunResult], kept: KeptResults, tmp_path: Path) -> None:
    shutil.move(kept.file, tmp_path / "elsewhere.jsonl")
    kept.file.symlink_to(tmp_path / "elsewhere.jsonl")
    with pytest.raises(DataError, match="is a link"):
        kept.find(ran[0], None)


def test_on_other_data_it_does_not_count(tmp_path: Path) -> None:
    rng, file = np.random.default_rng(0), tmp_path / "own.npz"
    labels = np.arange(60) % 3
    images = rng.integers(0, 255, (60, 4, 4)).astype(np.uint8)
    arrays: Any = {"x_train": images[:45], "y_train": labels[:45], "x_test": images[45:], "y_test": labels[45:]}
    np.savez(file, **arrays)
    settings = (f'dataset="{file}"', "clients=2", "min-size=5", "rounds=1", "model.embedding=8", "public.per-class=2")
    cell = Base(None, "quick", tuple(settings)).trial(Row("local", "local"), 0, tmp_path / "runs")
    result = result_of(run(cell.experiment, out=cell.folder).folder, cell.experiment)
    kept = KeptResults(tmp_path / "cells.jsonl")
    kept.add(result)
    before = file.read_bytes()
    assert kept.find(cell, None) is not None
    np.savez(file, **(arrays | {"y_test": 2 - arrays["y_test"]}))
    assert kept.find(cell, None) is None
    file.write_bytes(before)
    assert kept.find(cell, None) is not None


@pytest.mark.parametrize("lost", ["traffic", "accuracy", "the round's event"])
def test_events_without_what_a_curve_needs_are_refused(ran: tuple[Trial, RunResult], tmp_path: Path, lost: str) -> None:
    cell, finished = ran
    folder = Path(shutil.copytree(finished.folder, tmp_path / "copy"))
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    for event in events:
        event.pop(lost, None)
    left = [event for event in events if not (lost == "the round's event" and event["event"] == "round")]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in left))
    with pytest.raises(DataError, match=r"events\.jsonl has evaluations without their rounds or traffic"):
        result_of(folder, cell.experiment)


def test_a_run_that_continues_meanwhile_is_recorded_as_it_was(ran: tuple[Trial, RunResult], tmp_path: Path) -> None:
    cell, finished = ran
    longer = Path(shutil.copytree(finished.folder, tmp_path / "longer"))
    run(cell.experiment.model_copy(update={"rounds": 3}), out=longer, resume=True)
    assert len(result_of(longer, cell.experiment)["curve"]) == 3
    was = result_of(longer, cell.experiment, finished.summary)
    assert was == result_of(finished.folder, cell.experiment)


def rewritten(folder: Path, change: Callable[[Any], object]) -> Path:
    """The run folder with another first event."""
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    change(lines[0])
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_version_and_commit_are_those_of_the_run(ran: tuple[Trial, RunResult], tmp_path: Path) -> None:
    cell, finished = ran
    copied = Path(shutil.copytree(finished.folder, tmp_path / "copy"))
    folder = rewritten(copied, lambda first: first["machine"].update(refprotofl="0.0.9", commit="abc+"))
    reported = result_of(folder, cell.experiment)
    assert (reported["version"], reported["commit"]) == ("0.0.9", "abc+")
    here = result_of(finished.folder, cell.experiment)
    assert (here["version"], here["commit"]) == (version("refprotofl"), source_commit())


@pytest.mark.parametrize("older", [{"refprotofl": "0.0.9"}, {}, None])
def test_of_an_older_run_no_commit_is_known(ran: tuple[Trial, RunResult], tmp_path: Path, older: Any) -> None:
    cell, finished = ran
    folder = Path(shutil.copytree(finished.folder, tmp_path / "copy"))
    rewritten(folder, lambda first: first.update(machine=older))
    assert result_of(folder, cell.experiment)["commit"] is None


def test_extending_a_run_does_not_change_the_origin_of_its_first_rounds(
    ran: tuple[Trial, RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, finished = ran
    longer = Path(shutil.copytree(finished.folder, tmp_path / "longer"))
    monkeypatch.setattr("refprotofl.federation.loop.describe_machine", lambda: {"refprotofl": "9", "commit": "later"})
    run(cell.experiment.model_copy(update={"rounds": 3}), out=longer, resume=True)
    assert result_of(longer, cell.experiment)["commit"] == "later"
    assert result_of(longer, cell.experiment, finished.summary)["commit"] == source_commit()


def test_a_result_says_how_it_was_computed(ran: tuple[Trial, RunResult], kept: KeptResults) -> None:
    found = kept.find(ran[0], None)
    assert found is not None
    assert (found["numerics"], found["cpu_capability"]) == tuple(numerics.describe().values())


def test_a_native_result_is_not_reused_for_a_portable_one_but_an_unrecorded_one_is(
    ran: tuple[Trial, RunResult], kept: KeptResults
) -> None:
    cell, _ = ran
    path = kept.file
    other = "native" if numerics.describe()["numerics"] == "portable" else "portable"
    for mode, reused in ((other, False), (None, True)):  # None: not recorded
        plain = json.loads(path.read_text())
        plain["origin"].pop("numerics", None)
        if mode is not None:
            plain["origin"]["numerics"] = mode
        path.write_text(json.dumps(plain))
        assert (kept.find(cell, None) is not None) is reused
