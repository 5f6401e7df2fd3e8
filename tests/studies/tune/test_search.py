"""A whole search: what is run, on what, what is chosen, and what happens when something goes wrong."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.studies.tune.conftest import TINY, Ask

from refprotofl.core.errors import InputError, RunError
from refprotofl.federation import run
from refprotofl.studies import planner as planning
from refprotofl.studies.planner import Planner
from refprotofl.studies.pool import TrialFailure, TrialResult
from refprotofl.studies.results import KeptResults, Result
from refprotofl.studies.trials import Trial
from refprotofl.studies.tune.search import Request, SearchResult, check, first_runs, tune
from refprotofl.studies.tune.strategies import Configuration


def found_by(request: Request) -> list[SearchResult]:
    check(request)
    planner = Planner(None, kept=KeptResults(request.out / "cells.jsonl"))
    planner.conduct(first_runs(request))
    return [planner.conduct(tune(request, method)) for method in request.methods]


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def events_of(folder: Path) -> list[str]:
    return [event["event"] for event in events(folder) if event["event"] != "evaluation"]


Score = Callable[[Trial], float | RunError | None]


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Callable[[Score], list[Trial]]:
    """No run is done: its score is what a function says. Gives the list of cells that were asked for, as it grows."""

    def use(score: Score) -> list[Trial]:
        asked: list[Trial] = []

        def run_trials(trials: Sequence[Trial], *_: Any) -> Iterator[TrialResult | TrialFailure]:
            for trial in trials:
                asked.append(trial)
                got = score(trial)
                if isinstance(got, RunError):
                    yield TrialFailure(trial, got)
                    continue
                seconds = {"total": 1.0, "train": 1.0, "evaluate": 1.0}
                summary = {"accuracy": {"personal": got}, "experiment": trial.experiment.plain(), "seconds": seconds}
                yield TrialResult(trial, cast(Result, {"summary": summary}))

        monkeypatch.setattr(planning, "run_trials", run_trials)
        return asked

    return use


def test_each_chooses_what_its_mean_over_seeds_says(ask: Ask, scored: Any) -> None:
    by_lr = {0.01: (0.5, 0.7), 0.1: (0.9, 0.2), 1.0: (0.1, 0.1)}  # means 0.6, 0.55, 0.1
    by_momentum = {0.0: 0.0, 0.5: 0.125, 0.9: 0.0}

    def score(cell: Trial) -> float:
        train = cell.experiment.train
        return by_lr[train.lr][cell.experiment.seed - 7] + by_momentum[train.momentum]

    cells = scored(score)
    request = ask(search=["train.lr=0.01,0.1,1.0", "train.momentum=0.0,0.5,0.9"], seeds=(7, 8))
    assert check(request) == 5  # the default 0.9 was tried with the first key
    assert cells == []
    (one,) = found_by(request)
    assert one.chosen.configuration == Configuration((("train.lr", "0.01"), ("train.momentum", "0.5")), 3)
    assert one.chosen.values == {7: 0.625, 8: 0.825}
    assert one.chosen.score == pytest.approx(0.725)
    assert len(one.tried) == 5
    assert one.tried[0].configuration.typed == ["train.lr=0.01", "train.momentum=0.9"]  # in its last words
    assert one.at_an_end == ("train.lr",)
    assert {cell.experiment.validation for cell in cells} == {0.1}  # never the test set
    assert {cell.experiment.rounds for cell in cells} == {3}


@pytest.mark.parametrize(("said", "held"), [((), 0.1), (("validation=0.3",), 0.3), (("validation=0",), 0.1)])
def test_all_runs_hold_data_out(ask: Ask, scored: Any, said: tuple[str, ...], held: float) -> None:
    cells = scored(lambda cell: 0.5)
    for strategy in ("each", "grid", "random", "halving"):
        request = ask(["local", "fedproc"], settings=(*TINY, *said), strategy=strategy)
        found_by(request)
        assert request.experiment.validation == held
    assert {cell.experiment.validation for cell in cells} == {held}


def test_settings_that_only_the_searched_method_takes_are_no_trouble(ask: Ask) -> None:
    assert check(ask(["fedavg"], settings=(*TINY, "share=full"))) == 2


@pytest.mark.parametrize(
    ("methods", "search", "strategy", "message"),
    [
        (["local", "fedprox"], ["train.lr=0.01,0.1", "fedprox.mu=1,2"], "grid", "local 2, fedprox 4"),
        (["local", "fedprox"], ["train.lr=0.02,0.1", "fedprox.mu=1,2"], "each", "local 2, fedprox 4"),
        (["local", "fedprox"], ["fedprox.mu=1,2"], "each", "local 1, fedprox 2"),
        (["local", "fedprox"], ["fedprox.mu=1.0..2.0"], "random", "local 1, fedprox 3"),
        (["local", "fedprox"], ["train.lr=0.1", "fedprox@train.lr=0.1..0.2"], "random", "local 1, fedprox 3"),
    ],
)
def test_the_same_budget_for_all(ask: Ask, methods: list[str], search: list[str], strategy: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        check(ask(methods, search, strategy=strategy))
    assert "Every method gets the same budget" in str(refused.value)
    assert message in str(refused.value)


def test_a_trial_of_which_a_run_fails_is_never_chosen(ask: Ask, scored: Any) -> None:
    def score(cell: Trial) -> float | RunError | None:
        if cell.experiment.train.lr == 0.1:
            return RunError("it diverged") if cell.experiment.seed == 8 else 0.99
        return None if cell.experiment.train.lr == 0.2 else 0.3

    scored(score)
    (one,) = found_by(ask(search=["train.lr=0.1,0.2,0.3"], seeds=(7, 8)))
    assert one.chosen.configuration.typed == ["train.lr=0.3"]
    assert [tried.failed for tried in one.tried] == ["it diverged", "no client could be scored by personal", ""]


def test_a_method_of_which_all_runs_fail_is_reported(ask: Ask, scored: Any) -> None:
    scored(lambda cell: RunError("it diverged"))
    with pytest.raises(RunError, match="local: none of 2 trials finished: it diverged"):
        found_by(ask())


def test_runs_that_diverge_are_failed_trials(ask: Ask) -> None:
    (one,) = found_by(ask(search=["train.lr=1e30,0.01"]))
    assert one.chosen.configuration.typed == ["train.lr=0.01"]
    assert "no client is left" in one.tried[0].failed


def test_halving_trains_no_round_twice_and_ends_as_an_undisturbed_run(ask: Ask, tmp_path: Path) -> None:
    request = ask(search=["train.lr=0.001..0.1:log"], strategy="halving")
    assert check(request) == 4  # 3 of 1 round, 1 of 3
    (one,) = found_by(request)
    assert sorted(tried.configuration.rounds for tried in one.tried) == [1, 1, 1, 3]
    folders = sorted((request.out / "runs").iterdir())
    went_on = ["start", "round", "end", "resume", "extend", "round", "round", "end"]
    assert sorted(
        events_of(folder)[:-1] if "extend" not in events_of(folder) else went_on for folder in folders
    ) == sorted([["start", "round"], ["start", "round"], went_on])
    assert sum(events_of(folder).count("round") for folder in folders) == 5
    cell = request.trial("local", one.chosen.configuration, 7)
    assert cell.experiment.rounds == 3
    kept = json.loads((cell.folder / "summary.json").read_text())
    undisturbed = run(cell.experiment, out=tmp_path / "undisturbed").summary
    assert kept["state_digest"] == undisturbed["state_digest"]
    assert one.chosen.score == undisturbed["accuracy"]["personal"]
    first = max((tried for tried in one.tried if tried.configuration.rounds == 1), key=lambda tried: tried.score)
    assert first.configuration.settings == one.chosen.configuration.settings


def test_a_method_that_depends_on_the_rounds_starts_anew(ask: Ask) -> None:
    request = ask(["fedproc"], ["train.lr=0.001..0.1:log"], strategy="halving")
    found_by(request)
    folders = sorted((request.out / "runs").iterdir())
    assert len(folders) == 4
    assert all("extend" not in events_of(folder) for folder in folders)
    assert sum(events_of(folder).count("round") for folder in folders) == 3 * 1 + 3


def test_a_search_after_another_with_more_rounds_disturbs_nothing(ask: Ask) -> None:
    """The folders hold whole runs already; a trial of one round of the same settings gets a folder of its own."""
    space = ["train.lr=0.001..0.1:log"]
    (whole,) = found_by(ask(search=space, strategy="random"))
    request = ask(search=space, strategy="halving")
    (halved,) = found_by(request)
    by_settings = {tried.configuration.settings: tried.score for tried in whole.tried}
    assert halved.chosen.score == by_settings[halved.chosen.configuration.settings]
    folders = sorted((request.out / "runs").iterdir())
    assert sorted(events_of(folder).count("round") for folder in folders) == [1, 1, 1, 3, 3, 3]
    assert found_by(request) == [halved]


def test_finished_trials_are_read_when_the_search_resumes(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = found_by(ask(search=["train.lr=0.01,0.1", "train.momentum=0.0,0.5"]))
    request = ask(search=["train.lr=0.01,0.1", "train.momentum=0.0,0.5"], out=ask().out.with_name("again"))
    begun: list[str] = []

    def interrupted(*given: Any, **more: Any) -> Any:
        begun.append(str(more["out"]))
        if len(begun) == 3:
            raise KeyboardInterrupt
        return run(*given, **more)

    monkeypatch.setattr("refprotofl.studies.pool.run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        found_by(request)
    assert len((request.out / "cells.jsonl").read_text().splitlines()) == 2
    found = found_by(request)
    assert len(begun) == 5  # four trials, and the one that was interrupted
    assert [(one.chosen.configuration, one.chosen.values) for one in found] == [
        (one.chosen.configuration, one.chosen.values) for one in undisturbed
    ]
    assert found_by(request) == found
    assert len(begun) == 5


def test_a_protocol_that_a_method_lacks_is_reported_by_its_first_run(ask: Ask) -> None:
    request = ask(["fedavg:share=full", "local"], ["train.lr=0.01,0.1,0.2"], protocol="global")
    with pytest.raises(
        InputError, match=r"--protocol global: method = 'local' has no such accuracy here, only personal"
    ):
        found_by(request)
    assert len(list((request.out / "runs").iterdir())) == 2  # one run of each, which the search can use
    with pytest.raises(InputError, match="did you mean 'personal'"):
        check(ask(protocol="personel"))


def test_options_of_an_own_method_are_checked_before_anything_runs(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
from refprotofl.methods import find_method

class Mine:
    server, client = find_method("local").server, find_method("local").client
    options = {"trim": 0.1}
"""
    (tmp_path / "tuned_method.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert check(ask(["tuned_method:Mine"], ["tuned_method:Mine@own.trim=0.1,0.2"])) == 2
    with pytest.raises(InputError, match=r"own\.trom"):
        check(ask(["tuned_method:Mine"], ["own.trom=0.1,0.2"]))
