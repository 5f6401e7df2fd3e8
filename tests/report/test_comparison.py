"""Rows over seeds, from results whose numbers are known."""

from pathlib import Path
from typing import Any, cast

import pytest

from refprotofl.experiment import Experiment
from refprotofl.report.comparison import against, tabulate
from refprotofl.report.statistics import Estimate
from refprotofl.studies.results import Result
from refprotofl.studies.trials import Trial

NO_TRAFFIC = {way: {"payload_bytes": 0} for way in ("uplink", "downlink", "one_off")}


def done(
    name: str, seed: int, curve: list[float | None], clients: list[float | None] | None = None
) -> tuple[Trial, Result]:
    """A run with these evaluations of `personal`; its summary is the last of them."""
    experiment = Experiment(method="local", seed=seed, clients=3)
    summary = {
        "experiment": experiment.plain(),
        "accuracy": {"personal": curve[-1], "global": None},
        "accuracy_per_client": {"personal": clients or [curve[-1]]},
        "communication": NO_TRAFFIC,
        "full_model": {"participations": 0},
        "seconds": {"total": 0.0},
    }
    points: list[Any] = [{"round": 5 * n, "accuracy": {"personal": one}, "bytes": 0} for n, one in enumerate(curve, 1)]
    return Trial(name, experiment, Path(f"{name}{seed}")), cast(Result, {"summary": summary, "curve": points})


def test_the_last_evaluations_are_averaged_not_the_best_taken() -> None:
    (row,) = tabulate([done("a", 0, [0.9, 0.2, 0.3, 0.4]), done("a", 1, [0.1, 0.5, 0.6, 0.7])])
    assert row.accuracy["personal"].mean == pytest.approx(0.55)
    assert row.evaluations == 3
    assert row.last["personal"].mean == pytest.approx((0.3 + 0.6) / 2)
    assert row.last["personal"].half_width == pytest.approx(12.706204736 * 0.15)  # t(0.975, 1), standard error 0.15
    (row,) = tabulate([done("a", 0, [0.9, 0.2, 0.25, 0.5])], last=2)
    assert row.last == {"personal": Estimate(0.375, None, 1)}


def test_all_rows_average_as_many_evaluations_as_each_has() -> None:
    rows = tabulate([done("a", 0, [0.1, 0.2, 0.3, 0.5]), done("b", 0, [0.5, 0.75])])
    assert [row.evaluations for row in rows] == [2, 2]
    assert [row.last["personal"].mean for row in rows] == [pytest.approx(0.4), 0.625]


def test_one_evaluation_has_no_mean_of_the_last() -> None:
    assert [row.last for row in tabulate([done("a", 0, [0.1, 0.2]), done("b", 0, [0.5])])] == [{}, {}]
    (row,) = tabulate([done("a", 0, [0.1, None, 0.3])])
    assert row.last == {}


def test_worst_client_and_spread_are_means_over_seeds() -> None:
    first, second = done("a", 0, [0.5], [0.25, None, 0.75]), done("a", 1, [0.5], [0.5, 0.5, 0.5])
    (row,) = tabulate([first, second])
    assert row.worst == {"personal": 0.375}
    assert row.client_spread == {"personal": 0.125}


def test_rows_are_set_against_the_baseline_and_corrected_for_their_number() -> None:
    """Differences of 1, 2, 3 for `b`, with p = 0.0742 by hand; of 1, 1, 1 for `c`; seed 2 alone in common with `d`."""
    runs = {"a": (0.0, 0.0, 0.0), "b": (1.0, 2.0, 3.0), "c": (1.0, 1.0, 1.0)}
    results = [done(name, seed, [value]) for name, values in runs.items() for seed, value in enumerate(values)]
    rows = tabulate([*results, done("d", 2, [0.5]), done("d", 7, [0.5]), done("e", 9, [0.5])])
    base, *others = against(rows, "a")
    assert base.against is None
    sides = {row.name: row.against for row in others}
    found = {name: side.differences["personal"] for name, side in sides.items() if side and side.differences}
    assert {name: (one.paired.mean, one.paired.count) for name, one in found.items()} == {
        "b": (2, 3),
        "c": (1, 3),
        "d": (0.5, 1),
    }
    assert found["b"].paired.p == found["b"].p_holm == pytest.approx(0.0742, abs=5e-5)  # the larger of two
    assert found["c"].p_holm == 0
    assert found["d"].p_holm is None
    assert rows[1].against is None  # the rows themselves are as they were
    with pytest.raises(KeyError):
        against(rows, "z")
