"""`tune`, called as a user does."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny_options

from refprotofl.experiment.presets import load_experiment
from refprotofl.federation import session as simulation
from refprotofl.studies.tune.settings import read_tuned

TINY = [*tiny_options(clients=2), "--seeds", "7", "--workers", "1"]


def test_one_method_from_the_search_to_a_run_of_its_own(refprotofl: Any, tmp_path: Path) -> None:
    out, written = tmp_path / "tune", tmp_path / "new" / "best.toml"
    search = ("--search", "train.lr=1e30,0.01,0.05", "--search", "fedprox.mu=0.1", "--strategy", "grid")
    command = ("tune", "--methods", "fedprox:share=full", *search, "--out", out, "--write", written, *TINY)
    first = refprotofl(*command)
    assert first.code == 0, first.err
    assert "3 trials with 1 seed for each of 1 method" in first.err
    assert "not on the test set" in first.out
    assert "failed" in first.out  # with the learning rate of 1e30

    trials = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    assert {trial["experiment"]["validation"] for trial in trials} == {0.1}
    scores = {trial["settings"]["train.lr"]: trial.get("mean") for trial in trials}
    assert scores["1e30"] is None
    best = max(("0.01", "0.05"), key=lambda lr: scores[lr])
    (chosen,) = (trial["settings"] for trial in trials if trial["chosen"])
    assert chosen == {"train.lr": best, "fedprox.mu": "0.1"}
    kept = [json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()]
    assert {one["summary"]["experiment"]["validation"] for one in kept} == {0.1}
    experiment = load_experiment(written)
    assert (experiment.method, experiment.share, experiment.train.lr) == ("fedprox", "full", float(best))
    assert (experiment.validation, experiment.seed, experiment.rounds) == (0, 0, 2)
    assert refprotofl("run", written, "--workers", 1, "--out", tmp_path / "run").code == 0

    stamp = (out / "cells.jsonl").stat().st_mtime_ns
    again = refprotofl(*command, "--json")  # over its own file
    assert again.code == 0, again.err
    record = json.loads(again.out)
    assert record["experiment"]["validation"] == 0.1
    (method,) = record["methods"]
    assert method["chosen"]["settings"] == chosen
    assert method["trials"] == [
        {key: trial[key] for key in trial.keys() & one.keys()}
        for trial, one in zip(trials, method["trials"], strict=True)
    ]
    assert (out / "cells.jsonl").stat().st_mtime_ns == stamp


def test_several_methods_get_a_table_each_and_ends_are_reported(refprotofl: Any, tmp_path: Path) -> None:
    written = tmp_path / "best.toml"
    asked = "local,fedavg:share=full"
    command = ("tune", "--methods", asked, "--search", "train.lr=0.001..0.1:log", "--strategy", "random", "--trials", 2)
    outcome = refprotofl(*command, "--out", tmp_path / "tune", "--write", written, *TINY)
    assert outcome.code == 0, outcome.err
    found = read_tuned(written)
    assert list(found) == ["local", "fedavg:share=full"]
    trials = [json.loads(line) for line in (tmp_path / "tune" / "trials.jsonl").read_text().splitlines()]
    for method in found:
        best = max((trial for trial in trials if trial["method"] == method), key=lambda trial: trial["mean"])
        assert best["chosen"]
        assert found[method] == [f"train.lr={float(best['settings']['train.lr'])}"]
        assert 0.001 <= float(best["settings"]["train.lr"]) <= 0.1


def test_an_interrupt_keeps_finished_trials_and_the_same_command_resumes(
    refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun = simulation.run, []

    def run(experiment: Any, **options: Any) -> Any:
        begun.append(experiment.train.lr)
        if len(begun) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return real(experiment, **options)

    monkeypatch.setattr("refprotofl.studies.pool.run", run)
    options = ("--methods", "local", "--search", "train.lr=0.01,0.03,0.1", "--json", *TINY)
    first = refprotofl("tune", *options, "--out", tmp_path / "tune", "--write", tmp_path / "best.toml")
    assert first.code == 130
    kept = f"Interrupted. Finished and kept in {tmp_path / 'tune'}: 1 of 3 runs. The same command resumes."
    assert kept in first.err
    assert not (tmp_path / "best.toml").exists()
    again = refprotofl("tune", *options, "--out", tmp_path / "tune")
    assert again.code == 0, again.err
    assert begun == [0.01, 0.03, 0.03, 0.1]
    whole = refprotofl("tune", *options, "--out", tmp_path / "whole")
    assert json.loads(again.out)["methods"] == json.loads(whole.out)["methods"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--search", "train.lr=0.1,fast"], "train.lr = 'fast'"),
        (["--search", "train.lr=0.1,-1"], "train.lr = -1"),
        (["--search", "train.rl=0.1,0.2"], "There is no key train.rl"),
        (["--search", "train.lr=0.1", "--search", "train.lr=0.2"], "names train.lr twice"),
        (["--search", "train.lr=0.001..0.1"], "a range needs --strategy random or halving"),
        (["--search", "train.lr=0.001..0.1", "--strategy", "grid"], "a range needs --strategy"),
        (["--search", "train.lr=0.1..0.001", "--strategy", "random"], "low < high"),
        (["--search", "train.lr=,"], "give at least one value"),
        (["--search", "rounds=1,2"], "rounds must be the same in all trials"),
        (["--search", "fedprox.mu=1,2"], "--search fedprox.mu is for method 'fedprox', which is not among local"),
        (["--search", "train.lr=1", "--methods", "local,locl"], "did you mean 'local'?"),
        (["--search", "train.lr=1", "--methods", "local,local"], "A method is named twice: local."),
        (["--search", "train.lr=1", "--methods", "alone = local"], "alone = local: remove the name"),
        (["--search", "train.lr=1", "--seeds", "1,1"], "A seed is named twice: 1."),
        (["--search", "train.lr=1", "--protocol", "globl"], "did you mean 'global'?"),
        (["--search", "train.lr=1", "--methods", ","], "A study needs at least one method"),
        (["--search", "train.lr=1", "--write", "there.toml"], "no search wrote it; name another file"),
        (["--search", "train.lr=1", "--write", "there.toml/x.toml"], "is not writable"),
        (["--search", "train.lr=1", "--methods", "local,fedprox", "--search", "fedprox.mu=1,2"], "the same budget"),
    ],
)
def test_what_cannot_be_searched_is_said_before_anything_runs(
    refprotofl: Any, tmp_path: Path, options: list[str], sentence: str
) -> None:
    Path("there.toml").write_text("rounds = 3")
    outcome = refprotofl("tune", "--methods", "local", *TINY, *options, "--out", tmp_path / "tune")
    assert outcome.code == 2, outcome.err
    assert sentence in " ".join(outcome.err.split())
    assert not (tmp_path / "tune").exists()
    assert Path("there.toml").read_text() == "rounds = 3"


def test_without_any_result_the_reason_is_reported(refprotofl: Any, tmp_path: Path) -> None:
    outcome = refprotofl("tune", "--methods", "local", "--search", "train.lr=1e30", "--out", tmp_path / "tune", *TINY)
    assert outcome.code == 4
    assert "local: none of 1 trial finished: Round 1: no client is left" in " ".join(outcome.err.split())
