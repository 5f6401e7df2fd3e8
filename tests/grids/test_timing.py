"""How long a grid takes, from what is finished or from a warm-up."""

import tempfile
from pathlib import Path
from typing import Any, cast

import pytest
from tests.grids.conftest import MakeCell

from refprotofl.experiment import Experiment
from refprotofl.grids import timing
from refprotofl.grids.cells import Cell
from refprotofl.grids.timing import Clock, Pace, evaluations, pace_of, workers_for
from refprotofl.records.summary import Summary


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


def cell(rounds: int, seed: int, **keys: Any) -> Cell:
    return Cell("x", experiment(rounds, 10, seed=seed, **keys), Path("nowhere"))


def test_finished_runs_of_the_same_kind_tell_how_long_the_others_take(monkeypatch: pytest.MonkeyPatch) -> None:
    done, also, left, longer = cell(10, 0), cell(10, 1), cell(10, 2), cell(40, 3)
    other = cell(10, 4, dataset="mnist")
    finished = {
        done.experiment.hash: summary(done.experiment, 10.0, 2.0),
        also.experiment.hash: summary(also.experiment, 20.0, 4.0),
    }
    measured: list[str] = []
    words: list[str] = []

    def warm_up(first: Experiment, data: Path | None) -> Pace:
        measured.append(first.hash)
        return Pace(5.0, 1.0)

    monkeypatch.setattr(timing, "warm_up", warm_up)
    clock = Clock([done, also, left, longer, other], finished, None, words.append)
    assert clock.seconds(left) == pytest.approx(10 * 1.5 + 3.0)
    assert clock.seconds(longer) == pytest.approx(40 * 1.5 + 4 * 3.0)
    assert clock.seconds(other) == pytest.approx(10 * 5.0 + 1.0)
    assert clock.total == pytest.approx(18 + 72 + 51)
    assert measured == [other.experiment.hash]  # only what nothing is known of
    assert words == ["Measuring how long a round on mnist takes"]
    assert [clock.workers(one, "auto") for one in (left, longer)] == [1, "auto"]


def test_only_a_run_that_is_worth_it_gets_workers_and_what_the_user_says_holds() -> None:
    assert (workers_for(19.0, "auto"), workers_for(21.0, "auto")) == (1, "auto")
    assert (workers_for(1.0, 2), workers_for(100.0, 1)) == (2, 1)


def test_a_warm_up_measures_and_leaves_nothing(tiny: MakeCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pace = timing.warm_up(tiny("local", 0, "rounds=1000").experiment, None)
    assert 0 < pace.train < 60
    assert 0 < pace.evaluate < 60
    assert list(tmp_path.iterdir()) == []
