"""Runs that benchmarks make: rounds, workers, points of the scale, the start."""

import sys
from pathlib import Path

import pytest

from refprotofl import Experiment
from refprotofl.bench import overhead, parallel, scale, start
from refprotofl.bench.measuring import Row, private_bytes
from refprotofl.bench.scale import Point, draw_scale, experiment_of, measure_in_process, points
from refprotofl.bench.timed_runs import Lap, clocked_run
from refprotofl.core.errors import InputError, RunError
from refprotofl.federation.participation import draw_cohort


@pytest.fixture
def tiny() -> Experiment:
    return experiment_of(Point("mlp", clients=3, participants=2, samples=4, rounds=2)).model_copy(
        update={"dataset": overhead.IMAGES}
    )


def test_a_lap_has_every_round(tiny: Experiment) -> None:
    begun: list[str] = []
    lap = clocked_run(tiny, None, begun=lambda: begun.append("now"))
    assert begun == ["now"]
    assert len(lap.rounds) == len(lap.cpu) == 2
    assert all(seconds > 0 for seconds in (lap.setup, *lap.rounds, *lap.cpu))


def test_workers_are_compared_by_their_rounds_and_not_by_their_start(
    tiny: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lap(experiment: Experiment, data: Path | None, workers: int) -> Lap:
        rounds = {1: (2.0, 3.0), 3: (9.0, 1.25)}[workers]
        return Lap(5.0 * workers, rounds, (), "the same")

    monkeypatch.setattr(parallel, "clocked_run", lap)
    alone, three = parallel.measure_workers(tiny, None, workers=3, repeats=2).rows
    assert alone == {"workers": 1, "first_commit_s": 7.0, "round_s": 3.0, "speed_up": 1.0, "spread": "1.00 to 1.00"}
    assert three == {"workers": 3, "first_commit_s": 24.0, "round_s": 1.25, "speed_up": 2.4, "spread": "2.40 to 2.40"}


def test_workers_that_give_another_result_are_an_error(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "clocked_run", lambda *run: Lap(1.0, (1.0, 1.0), (1.0, 1.0), f"by {run[2]}"))
    with pytest.raises(RunError, match="2 state digests"):
        parallel.measure_workers(tiny, None, workers=2, repeats=1)


@pytest.mark.parametrize(("clients", "participants"), [(100, 100), (3000, 100), (10_000, 100), (7, 3)])
def test_as_many_take_part_as_the_point_says(clients: int, participants: int) -> None:
    experiment = experiment_of(Point("mlp", clients, participants, 10, 1))
    assert len(draw_cohort(experiment, 1)) == participants
    assert experiment.train_limit == 10 * clients + 50


def test_points_are_of_constant_samples_and_at_most_all_take_part() -> None:
    assert points("mlp", [50, 200], 100, 10, 4) == [Point("mlp", 50, 50, 10, 4), Point("mlp", 200, 100, 10, 4)]
    assert [point.participants for point in points("mlp", [50, 200], None, 10, 4)] == [50, 200]
    with pytest.raises(InputError, match="there are images for 1099"):
        points("mlp", [1100], 10, 100, 4)


def test_a_point_is_measured_in_its_own_process() -> None:
    row = measure_in_process(Point("mlp", clients=4, participants=2, samples=3, rounds=2))
    assert (row["model"], row["clients"], row["in_a_round"], row["samples_each"]) == ("mlp", 4, 2, 3)
    if private_bytes() is not None:
        own_inputs = overhead.MANY_SAMPLES * overhead.SIDE**2 / 1e6
        assert isinstance(row["memory_mb"], float)
        assert row["memory_mb"] > own_inputs


def test_a_point_that_fails_says_why() -> None:
    with pytest.raises(RunError, match=r"2 clients failed: .*fraction = 2\.5"):
        measure_in_process(Point("mlp", clients=2, participants=5, samples=3, rounds=1))


def test_points_become_rows_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(point: Point) -> Row:
        memory = None if point.clients == 3 else 200.0
        return {"clients": point.clients, "round_s": 0.1 * point.clients, "round_cpu_s": 0.1, "memory_mb": memory}

    monkeypatch.setattr(scale, "measure_in_process", measured)
    lines: list[str] = []
    report = scale.measure_scale(points("mlp", [1, 2, 3], None, 5, 1), lines.append)
    assert lines[-1] == "mlp: 3 clients, 3 in a round"
    assert "memory is unknown" in report.notes[-1]
    assert draw_scale(report.rows, tmp_path / "new" / "scale.svg", "mlp").endswith("scale.svg: 3 points.")
    with pytest.raises(InputError, match=r"\.png, \.pdf, \.svg"):
        draw_scale(report.rows, tmp_path / "scale.gif", "mlp")


def test_a_command_that_fails_is_not_timed() -> None:
    with pytest.raises(RunError, match="ended with 3"):
        start.wall_clock([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_round_is_there_once_its_event_is(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    assert not start.has_round(events)
    events.write_text('{"event": "start"}\n')
    assert not start.has_round(events)
    events.write_text('{"event": "start"}\n{"event": "round", "round": 1}\n')
    assert start.has_round(events)


def test_the_first_round_of_a_run_comes() -> None:
    settings = ["--preset", "quick", "--workers", "1", "--set", "clients=2", "--set", "train-limit=120"]
    assert start.first_round(settings) > 0


def test_a_run_without_a_round_is_an_error() -> None:
    with pytest.raises(RunError, match="did not commit"):
        start.first_round(["--preset", "no-such-preset"])
