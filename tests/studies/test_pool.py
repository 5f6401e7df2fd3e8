"""More processes at a grid: the same results, sooner."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.studies.conftest import MakeTrial

from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import load_experiment
from refprotofl.federation import Callback, run
from refprotofl.records import Checkpoint
from refprotofl.studies import pool
from refprotofl.studies.pool import TrialFailure, TrialResult, WorkerPool, processes_for, run_trials
from refprotofl.studies.results import KeptResults
from refprotofl.studies.trials import Trial

Watch = Callable[[Trial], Callback]


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.1)


def test_a_hand_does_the_last_runs_and_this_process_reads_them(
    tiny: MakeTrial, unwatched: Watch, tmp_path: Path
) -> None:
    cells, kept = [tiny("local", seed) for seed in range(3)], KeptResults(tmp_path / "cells.jsonl")
    alone = run(cells[2].experiment, out=tmp_path / "alone").summary["state_digest"]
    with WorkerPool(1, cells, None, kept):
        wait_for(cells[2].folder / "summary.json")
        done = [one for one in run_trials(cells, None, 1, unwatched, kept) if isinstance(one, TrialResult)]
    assert {one.trial.experiment.seed: one.reused for one in done}[2]
    by_seed = {one.trial.experiment.seed: one.result for one in done}
    assert by_seed[2]["summary"]["state_digest"] == alone
    for cell in cells:
        events = [json.loads(line)["event"] for line in (cell.folder / "events.jsonl").read_text().splitlines()]
        assert events.count("start") == events.count("end") == 1


def test_a_failure_in_a_worker_is_reported_by_this_process(tiny: MakeTrial, unwatched: Watch) -> None:
    cells = [tiny("local", 0), tiny("local", 1, "train.lr=1e30")]
    with WorkerPool(1, cells, None, None):
        wait_for(cells[1].folder / "experiment.json")
        done = list(run_trials(cells, None, 1, unwatched))
    failed = {one.trial.experiment.seed: isinstance(one, TrialFailure) for one in done}
    assert failed == {0: False, 1: True}


def test_there_are_as_many_processes_as_cores_to_spare(tiny: MakeTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "process_count", lambda device: 4)
    cells = [tiny("local", seed) for seed in range(10)]
    assert processes_for(cells, 100.0) == 3
    assert processes_for(cells[:2], 100.0) == 1
    assert processes_for(cells, 5.0) == 0


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("device=cpu", "deadline=7", "keep-checkpoints=1"),
        ("method=fedavg", "share=full"),
        ("partition=shards", "evaluate.clients=3", "public.coverage=0.5"),
    ],
)
def test_what_was_asked_for_makes_the_same_experiment(settings: tuple[str, ...]) -> None:
    experiment = load_experiment(None, "quick", settings)
    again = Experiment.parse(json.loads(json.dumps(experiment.asked())))
    assert again == experiment
    assert again.hash == experiment.hash


def test_a_finished_run_of_a_grid_keeps_its_last_round_alone_and_can_be_extended(
    tiny: MakeTrial, unwatched: Watch, tmp_path: Path
) -> None:
    short, longer = tiny("fedavg", 0, "rounds=3"), tiny("fedavg", 0, "rounds=4")
    (done,) = run_trials([short], None, 1, unwatched)
    files = sorted(path.name for path in (done.trial.folder / "checkpoint").rglob("*.safetensors"))
    assert files == ["000000-3.safetensors", "000001-3.safetensors", "server-3.safetensors"]
    assert set(Checkpoint(done.trial.folder / "checkpoint", ["", ""], 3).kept_records) == {3}
    alone = run(longer.experiment, out=tmp_path / "alone").summary["state_digest"]
    extended = run(longer.experiment, out=done.trial.folder, resume=True)
    assert extended.summary["state_digest"] == alone


def test_rounds_that_were_asked_for_are_kept(tiny: MakeTrial, unwatched: Watch) -> None:
    (done,) = run_trials([tiny("fedavg", 0, "rounds=3", "keep-checkpoints=2")], None, 1, unwatched)
    states = {path.name for path in (done.trial.folder / "checkpoint").glob("server-*")}
    assert states == {"server-2.safetensors", "server-3.safetensors"}
