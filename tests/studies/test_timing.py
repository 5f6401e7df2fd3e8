"""The time of a grid, predicted from finished runs or from a warm-up."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.studies.conftest import MakeTrial

from refprotofl.core.errors import RunError
from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.records.machine import describe_machine
from refprotofl.records.summary import Summary
from refprotofl.studies import timing
from refprotofl.studies.timing import Clock, Pace, evaluations, pace_of, passes, ran_alone_here, workers_for
from refprotofl.studies.trials import Trial


def experiment(rounds: int, every: int, **keys: Any) -> Experiment:
    return Experiment.parse({"rounds": rounds, "evaluate": {"every": every}, **keys})


@pytest.mark.parametrize(("rounds", "every", "count"), [(20, 5, 4), (20, 6, 4), (20, 20, 1), (20, 50, 1), (1, 1, 1)])
def test_a_run_is_evaluated_every_so_often_and_at_the_end(rounds: int, every: int, count: int) -> None:
    assert evaluations(experiment(rounds, every)) == count


def summary(ran: Experiment, train: float, evaluate: float) -> Summary:
    seconds = {"total": 0.0, "train": train, "evaluate": evaluate}
    return cast(Summary, {"experiment": ran.plain(), "seconds": seconds})


def test_a_pace_is_carried_over_to_other_numbers_of_rounds() -> None:
    pace = pace_of(summary(experiment(10, 5), train=30.0, evaluate=4.0))
    assert pace == Pace(train=3.0, evaluate=2.0)
    assert pace.total(experiment(20, 6)) == 20 * 3.0 + 4 * 2.0


THIN: dict[str, Any] = {"method": "thin", "train": {"local-epochs": 6}}


@pytest.mark.parametrize(
    ("keys", "count"),
    [
        ({}, 10),
        ({"train": {"local-epochs": 3}}, 30),
        ({"fraction": 0.5, "train": {"local-epochs": 3}}, 15),
        ({"method": "fedrep", "train": {"local-epochs": 3}, "fedrep": {"head-epochs": 2}}, 50),
        (THIN, 60),
        ({**THIN, "finetune": {"epochs": 5}}, 60 + 5 * 0.9),  # once, however many rounds
    ],
)
def test_passes_over_the_data_are_those_of_all_rounds_and_after_the_last(keys: dict[str, Any], count: float) -> None:
    assert passes(experiment(10, 5, **keys)) == pytest.approx(count, rel=0.01)


def cell(rounds: int, seed: int, folder: Path = Path("nowhere"), **keys: Any) -> Trial:
    return Trial("x", experiment(rounds, 10, seed=seed, **keys), folder)


Made = Callable[..., Path]


@pytest.fixture
def ran(tmp_path: Path) -> Made:
    """A folder of a run that was begun under other conditions than these, if any are named."""

    def make(name: str, workers: int = 1, **other: str) -> Path:
        (tmp_path / name).mkdir()
        started = {"event": "start", "workers": workers, "machine": {**describe_machine(), **other}}
        (tmp_path / name / "events.jsonl").write_text(json.dumps(started) + "\n")
        return tmp_path / name

    return make


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods that were measured, on which data; each takes five seconds a pass and one an evaluation."""
    found: list[str] = []

    def warm_up(first: Experiment, data: Path | None) -> Pace:
        found.append(f"{first.method} on {first.dataset}")
        if first.train.lr > 1:
            raise RunError("it diverged")
        return Pace(5.0, 1.0)

    monkeypatch.setattr(timing, "warm_up", warm_up)
    return found


def test_finished_runs_of_the_same_kind_predict_how_long_the_others_take(ran: Made, measured: list[str]) -> None:
    done, also, left, longer = cell(10, 0, ran("a")), cell(10, 1, ran("b")), cell(10, 2), cell(40, 3)
    other = cell(10, 4, dataset="mnist")
    finished = {
        done.experiment.hash: summary(done.experiment, 10.0, 2.0),
        also.experiment.hash: summary(also.experiment, 20.0, 4.0),
    }
    words: list[str] = []
    clock = Clock()
    total = clock.estimate([done, also, left, longer, other], finished, None, words.append)
    assert clock.seconds(left.experiment) == pytest.approx(10 * 1.5 + 3.0)
    assert clock.seconds(longer.experiment) == pytest.approx(40 * 1.5 + 4 * 3.0)
    assert clock.seconds(other.experiment) == pytest.approx(10 * 5.0 + 1.0)
    assert total == pytest.approx(18 + 72 + 51)
    assert measured == ["refprotofl on mnist"]  # only what nothing is known of
    assert words == ["Measuring the time of a round of refprotofl on mnist"]
    assert [workers_for(clock.seconds(one.experiment), "auto") for one in (left, longer)] == [1, "auto"]


@pytest.mark.parametrize("conditions", [{"workers": 2}, {"processor": "another"}, {"torch": "2.0"}, None])
def test_runs_of_other_machines_or_several_workers_say_nothing_of_one_process_here(
    ran: Made, measured: list[str], conditions: dict[str, Any] | None
) -> None:
    folder = Path("only-its-result-is-kept") if conditions is None else ran("a", **conditions)
    done, left = cell(10, 0, folder), cell(10, 1)
    total = Clock().estimate(
        [done, left], {done.experiment.hash: summary(done.experiment, 9000.0, 2.0)}, None, lambda words: None
    )
    assert total == 10 * 5.0 + 1.0
    assert measured == ["refprotofl on digits"]


def test_another_method_is_measured_where_it_has_many_rounds_ahead(ran: Made, measured: list[str]) -> None:
    done, few, many = cell(10, 0, ran("a")), cell(20, 1, method="local"), cell(40, 2, method="fedproto")
    finished = {done.experiment.hash: summary(done.experiment, 10.0, 2.0)}
    clock = Clock()
    clock.estimate([done, few, many], finished, None, lambda words: None)
    assert clock.seconds(few.experiment) == 20 * 1.0 + 2 * 2.0  # as the finished one of the same data
    assert clock.seconds(many.experiment) == 40 * 5.0 + 4 * 1.0
    assert measured == ["fedproto on digits"]


def test_longer_rounds_take_in_proportion_and_are_not_measured_again(measured: list[str]) -> None:
    short, long = (cell(40, 0, **keys, finetune={"epochs": 3}) for keys in ({"method": "thin"}, THIN))
    clock = Clock()
    clock.estimate([short, long], {}, None, lambda words: None)
    assert clock.seconds(short.experiment) == pytest.approx((40 + 2.7) * 5.0 + 4, rel=0.01)
    assert clock.seconds(long.experiment) == pytest.approx((240 + 2.7) * 5.0 + 4, rel=0.01)
    assert measured == ["thin on digits"]


def test_what_fails_when_it_is_measured_does_not_end_the_grid(measured: list[str]) -> None:
    fine, broken = cell(80, 0), cell(40, 0, method="local", train={"lr": 1e30})
    clock = Clock()
    clock.estimate([fine, broken], {}, None, lambda words: None)
    assert clock.seconds(broken.experiment) == 40 * 5.0 + 4 * 1.0
    assert Clock().estimate([broken], {}, None, lambda words: None) == 0.0
    assert measured == ["refprotofl on digits", "local on digits", "local on digits"]


def test_a_run_records_whether_it_ran_alone(tiny: MakeTrial) -> None:
    one, two = tiny("local", 0), tiny("local", 1)
    run(one.experiment, out=one.folder)
    run(two.experiment, out=two.folder, workers=2)
    assert (ran_alone_here(one.folder), ran_alone_here(two.folder)) == (True, False)


def test_only_a_run_that_is_worth_it_gets_workers_and_what_the_user_says_holds() -> None:
    assert (workers_for(19.0, "auto"), workers_for(21.0, "auto")) == (1, "auto")
    assert (workers_for(1.0, 2), workers_for(100.0, 1)) == (2, 1)


def test_a_warm_up_measures_and_leaves_nothing(
    tiny: MakeTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pace = timing.warm_up(tiny("local", 0, "rounds=1000").experiment, None)
    assert 0 < pace.train < 60
    assert 0 < pace.evaluate < 60
    assert list(tmp_path.iterdir()) == []
