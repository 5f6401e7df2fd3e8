"""A grid's runs are done once, by however many processes, whatever happens to them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import pytest
from tests.studies.conftest import TINY, MakeCell

from refprotofl.core.errors import MachineError, RunError
from refprotofl.federation.session import Callback, run
from refprotofl.records.machine import source_commit
from refprotofl.studies import runner
from refprotofl.studies.cells import Cell
from refprotofl.studies.results import KeptResults
from refprotofl.studies.runner import Failed, run_cells

Watch = Callable[[int, Cell], Callback]


def told(folder: Path) -> list[str]:
    """What happened in a run, but for evaluations."""
    events = [json.loads(line)["event"] for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event for event in events if event != "evaluation"]


def test_what_is_kept_is_not_run_again(tiny: MakeCell, unwatched: Watch, tmp_path: Path, request: Any) -> None:
    kept, cells = KeptResults(tmp_path / "cells.jsonl"), [tiny("local", 0), tiny("local", 1)]
    first = list(run_cells(cells, None, 1, unwatched, kept=kept))
    assert [(cell.reused, result["commit"]) for cell, result in first] == [(False, source_commit())] * 2
    request.getfixturevalue("no_runs")
    again = list(run_cells(cells, None, 1, unwatched, kept=kept))
    assert [cell.reused for cell, _ in again] == [True, True]
    for (_, one), (_, other) in zip(first, again, strict=True):
        assert one["summary"]["state_digest"] == other["summary"]["state_digest"]
        assert one["curve"] == other["curve"]


def test_a_run_that_was_finished_and_not_kept_is_kept(tiny: MakeCell, unwatched: Watch, tmp_path: Path) -> None:
    """The process that ran it was killed between the two."""
    cell = tiny()
    run(cell.experiment, out=cell.folder)
    kept = KeptResults(tmp_path / "cells.jsonl")
    ((done, result),) = run_cells([cell], None, 1, unwatched, kept=kept)
    assert done.reused
    assert result["commit"] == source_commit()
    found = kept.find(cell, None)
    assert found is not None
    assert found["curve"] == result["curve"]
    assert told(cell.folder) == ["start", "round", "round", "end"]


def test_a_failure_ends_the_grid_unless_it_is_listened_to(tiny: MakeCell, unwatched: Watch) -> None:
    cells = [tiny("local", 0, "train.lr=1e30"), tiny("local", 1)]
    with pytest.raises(RunError, match="no client is left"):
        list(run_cells(cells, None, 1, unwatched))
    failures: list[Failed] = []
    done = list(run_cells(cells, None, 1, unwatched, failed=failures.append))
    assert [cell.experiment.seed for cell, _ in done] == [1]
    assert [failed.cell for failed in failures] == cells[:1]
    assert "no client is left" in str(failures[0].problem)


def test_what_the_machine_does_to_a_run_ends_the_grid(
    tiny: MakeCell, unwatched: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault of the run's settings, and the next one would meet it, too."""
    begun = []

    def full(experiment: Any, **_: Any) -> None:
        begun.append(experiment.seed)
        raise MachineError("The disk is full")

    monkeypatch.setattr(runner, "run", full)
    with pytest.raises(MachineError, match="disk is full"):
        list(run_cells([tiny("local", 0), tiny("local", 1)], None, 1, unwatched, failed=lambda failed: None))
    assert begun == [0]


def hold(cell: Cell) -> filelock.FileLock:
    """As another process that runs in the folder."""
    cell.folder.mkdir(parents=True)
    lock = filelock.FileLock(cell.folder / ".lock")
    lock.acquire()
    return lock


def test_what_another_process_is_at_comes_last(
    tiny: MakeCell, unwatched: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [tiny("local", seed) for seed in range(3)]
    locks = [hold(cell) for cell in cells[:2]]
    slept = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        locks[len(locks) - len(slept)].release()  # the second first

    monkeypatch.setattr("refprotofl.studies.runner.time.sleep", sleep)
    done = [cell.experiment.seed for cell, _ in run_cells(cells, None, 1, unwatched)]
    assert done == [2, 1, 0]
    assert slept == [runner.POLL] * 2  # only when all that was left was somebody else's


WORK = """
import json, sys
from pathlib import Path
from refprotofl.studies.cells import plan
from refprotofl.studies.results import KeptResults
from refprotofl.studies.runner import run_cells
from refprotofl.federation.session import Callback

out = Path(sys.argv[1])
cells = plan(None, "quick", json.loads(sys.argv[2]), ["local", "fedproto"], [0, 1, 2], out / "runs")
print("ready", flush=True)
sys.stdin.readline()
done = list(run_cells(cells, None, 1, lambda number, cell: Callback(), kept=KeptResults(out / "cells.jsonl")))
print(json.dumps({cell.folder.name: (cell.reused, result["summary"]["state_digest"]) for cell, result in done}))
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
        assert told(folder) == ["start", "round", "round", "end"]
        assert one[folder.name][1] == other[folder.name][1]
        assert sorted((one[folder.name][0], other[folder.name][0])) == [False, True]  # exactly one of them ran it
    kept = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [result["commit"] for result in kept] == [source_commit()] * 6  # whoever was the last to keep it


KILLED = """
import json, os, signal, sys
from pathlib import Path
from refprotofl.studies.cells import cell_of
from refprotofl.federation.session import Callback, run

class Kill(Callback):
    def on_round(self, event, accuracy):
        os.kill(os.getpid(), signal.SIGKILL)

cell = cell_of(None, "quick", json.loads(sys.argv[2]), "local", 0, Path(sys.argv[1]))
run(cell.experiment, out=cell.folder, callback=Kill())
"""


def test_a_run_whose_holder_was_killed_is_taken_over(tiny: MakeCell, unwatched: Watch, tmp_path: Path) -> None:
    cell = tiny()
    command = [sys.executable, "-c", KILLED, str(tmp_path / "runs"), json.dumps(TINY)]
    assert subprocess.run(command, env={**os.environ}, check=False).returncode == -signal.SIGKILL
    assert (cell.folder / ".lock").exists()  # it is stale: its holder is gone
    assert not (cell.folder / "summary.json").exists()
    ((done, result),) = run_cells([cell], None, 1, unwatched)
    assert not done.reused
    assert told(cell.folder) == ["start", "round", "resume", "round", "end"]
    undisturbed = run(cell.experiment, out=tmp_path / "undisturbed")
    assert result["summary"]["state_digest"] == undisturbed.summary["state_digest"]
