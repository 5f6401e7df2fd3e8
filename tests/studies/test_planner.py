"""A grid's runs are done once, by however many processes, whatever happens to them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import pytest
from tests.studies.conftest import TINY, MakeTrial

from refprotofl.core.errors import MachineError, RunError
from refprotofl.federation import Callback, run
from refprotofl.records.machine import source_commit
from refprotofl.studies import pool
from refprotofl.studies.planner import Planner, Study
from refprotofl.studies.pool import TrialFailure, TrialResult, run_trials
from refprotofl.studies.results import KeptResults
from refprotofl.studies.trials import Trial, rung

Watch = Callable[[Trial], Callback]


def finished(outcomes: Iterator[TrialResult | TrialFailure]) -> list[TrialResult]:
    return [one for one in outcomes if isinstance(one, TrialResult)]


def events_of(folder: Path) -> list[str]:
    """Return the kinds of a run's events, without evaluations."""
    events = [json.loads(line)["event"] for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event != "evaluation"]


def test_what_is_kept_is_not_run_again(tiny: MakeTrial, unwatched: Watch, tmp_path: Path, request: Any) -> None:
    kept, cells = KeptResults(tmp_path / "cells.jsonl"), [tiny("local", 0), tiny("local", 1)]
    first = finished(run_trials(cells, None, 1, unwatched, kept))
    assert [(one.reused, one.result["commit"]) for one in first] == [(False, source_commit())] * 2
    request.getfixturevalue("no_runs")
    again = finished(run_trials(cells, None, 1, unwatched, kept))
    assert [one.reused for one in again] == [True, True]
    for one, other in zip(first, again, strict=True):
        assert one.result["summary"]["state_digest"] == other.result["summary"]["state_digest"]
        assert one.result["curve"] == other.result["curve"]


def test_a_run_that_was_finished_and_not_kept_is_kept(tiny: MakeTrial, unwatched: Watch, tmp_path: Path) -> None:
    """The process that ran it was killed between the two."""
    cell = tiny()
    run(cell.experiment, out=cell.folder)
    kept = KeptResults(tmp_path / "cells.jsonl")
    (done,) = finished(run_trials([cell], None, 1, unwatched, kept))
    assert done.reused
    assert done.result["commit"] == source_commit()
    found = kept.find(cell, None)
    assert found is not None
    assert found["curve"] == done.result["curve"]
    assert events_of(cell.folder) == ["start", "round", "round", "end"]


def test_a_failure_is_an_outcome_unless_the_study_stops_at_it(tiny: MakeTrial) -> None:
    cells = [tiny("local", 0, "train.lr=1e30"), tiny("local", 1)]
    with pytest.raises(RunError, match="no client is left"):
        Planner(None).run(cells, stop_at_failure=True)
    planner = Planner(None)
    outcomes = planner.run(cells)
    assert [trial.experiment.seed for trial, _ in outcomes.of(cells)] == [1]
    assert [failed.trial for failed in planner.failures] == cells[:1]
    values, reason = outcomes.scores(cells, "personal")
    assert list(values) == [1]
    assert "no client is left" in reason
    assert outcomes.scores(cells[1:], "global") == ({}, "no client could be scored by global")


def test_what_the_machine_does_to_a_run_ends_the_grid(
    tiny: MakeTrial, unwatched: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault of the run's settings, and the next one would meet it, too."""
    begun = []

    def full(experiment: Any, **_: Any) -> None:
        begun.append(experiment.seed)
        raise MachineError("The disk is full")

    monkeypatch.setattr(pool, "run", full)
    with pytest.raises(MachineError, match="disk is full"):
        list(run_trials([tiny("local", 0), tiny("local", 1)], None, 1, unwatched))
    assert begun == [0]


def hold(cell: Trial) -> filelock.FileLock:
    """Hold the folder like another process that runs in it."""
    cell.folder.mkdir(parents=True)
    lock = filelock.FileLock(cell.folder / ".lock")
    lock.acquire()
    return lock


def test_what_another_process_is_at_comes_last(
    tiny: MakeTrial, unwatched: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [tiny("local", seed) for seed in range(3)]
    locks = [hold(cell) for cell in cells[:2]]
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        locks[len(locks) - len(slept)].release()  # the second first

    monkeypatch.setattr("refprotofl.studies.pool.time.sleep", sleep)
    done = [one.trial.experiment.seed for one in run_trials(cells, None, 1, unwatched)]
    assert done == [2, 1, 0]
    assert slept == [pool.POLL] * 2  # only when all that was left belonged to another process


WORK = """
import json, sys
from pathlib import Path
from refprotofl.studies.planner import Planner
from refprotofl.studies.results import KeptResults
from refprotofl.studies.rows import Row
from refprotofl.studies.trials import Base, seed_by_seed

out = Path(sys.argv[1])
rows = [Row("local", "local"), Row("fedproto", "fedproto")]
trials = seed_by_seed(Base(None, "quick", tuple(json.loads(sys.argv[2]))), rows, [0, 1, 2], out / "runs")
print("ready", flush=True)
sys.stdin.readline()
done = Planner(None, kept=KeptResults(out / "cells.jsonl")).run(trials).results.values()
print(json.dumps({one.trial.folder.name: (one.reused, one.result["summary"]["state_digest"]) for one in done}))
"""


def test_two_processes_do_every_run_once_and_both_have_all_results(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORK, str(tmp_path), json.dumps(TINY)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]
    try:
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in both:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        one, other = (json.loads(process.communicate(timeout=120)[0]) for process in both)
    finally:
        for process in both:
            process.kill()
            process.wait()
    folders = sorted((tmp_path / "runs").iterdir())
    assert len(folders) == 6
    for folder in folders:
        assert events_of(folder) == ["start", "round", "round", "end"]
        assert one[folder.name][1] == other[folder.name][1]
        assert sorted((one[folder.name][0], other[folder.name][0])) == [False, True]  # exactly one of them ran it
    kept = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [result["commit"] for result in kept] == [source_commit()] * 6  # whichever process kept it last


KILLED = """
import json, os, signal, sys
from pathlib import Path
from refprotofl.studies.rows import Row
from refprotofl.studies.trials import Base
from refprotofl.federation import Callback, run

class Kill(Callback):
    def on_round(self, event, accuracy):
        os.kill(os.getpid(), signal.SIGKILL)

cell = Base(None, "quick", tuple(json.loads(sys.argv[2]))).trial(Row("local", "local"), 0, Path(sys.argv[1]))
run(cell.experiment, out=cell.folder, callback=Kill())
"""


def test_a_run_whose_holder_was_killed_is_taken_over(tiny: MakeTrial, unwatched: Watch, tmp_path: Path) -> None:
    cell = tiny()
    command = [sys.executable, "-c", KILLED, str(tmp_path / "runs"), json.dumps(TINY)]
    assert subprocess.run(command, env={**os.environ}, check=False).returncode == -signal.SIGKILL
    assert (cell.folder / ".lock").exists()  # it is stale: its holder is gone
    assert not (cell.folder / "summary.json").exists()
    (done,) = finished(run_trials([cell], None, 1, unwatched))
    assert not done.reused
    assert events_of(cell.folder) == ["start", "round", "resume", "round", "end"]
    undisturbed = run(cell.experiment, out=tmp_path / "undisturbed")
    assert done.result["summary"]["state_digest"] == undisturbed.summary["state_digest"]


def test_the_same_experiment_under_two_names_is_run_once(tiny: MakeTrial) -> None:
    one, other = tiny("local"), replace(tiny("local"), name="training alone")
    planner = Planner(None)
    outcomes = planner.run([one, other])
    assert len(planner.planned) == len(outcomes.results) == 1
    assert [trial.name for trial, _ in outcomes.of([one, other])] == ["local", "training alone"]
    assert events_of(one.folder) == ["start", "round", "round", "end"]


def test_a_study_may_ask_again_and_longer_trials_resume_shorter_ones(tiny: MakeTrial) -> None:
    short, whole = (rung(tiny("local", 0, f"rounds={rounds}"), 3) for rounds in (1, 3))

    def study() -> Study[list[int]]:
        first = yield [short]
        second = yield [whole]
        return [one.result["summary"]["rounds_done"] for out in (first, second) for one in out.results.values()]

    assert Planner(None).conduct(study()) == [1, 3]
    assert [event for event in events_of(whole.folder) if event in ("round", "extend")] == [
        "round",
        "extend",
        "round",
        "round",
    ]
    outcomes = Planner(None).run([short])  # the folder holds more rounds now
    assert outcomes.of([short])[0][0].folder != whole.folder
