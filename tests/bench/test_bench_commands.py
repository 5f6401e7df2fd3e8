"""The commands of `bench`: a table with the machine under it, or JSON."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

import refprotofl.cli  # noqa: F401 - registers the commands
from refprotofl.bench import kernels, overhead, precision, scale
from refprotofl.bench.codes import BITS
from refprotofl.bench.measuring import Report
from refprotofl.cli.entry import app
from refprotofl.cli.output import out
from refprotofl.core import numerics
from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.methods.builtin.thin.codes import CODES
from refprotofl.models.kernels import FAST

Bench = Callable[..., Result]

TINY_ADAPTER = ("aggregate", "--uploads", 2, "--size", 300, "--repeats", 1)


@pytest.fixture
def bench() -> Bench:
    def call(*arguments: object) -> Result:
        result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
        if result.exception is not None:
            raise result.exception
        return result

    return call


def test_a_table_comes_with_the_machine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "width", 200)
    shown = " ".join(bench(*TINY_ADAPTER).stdout.split())
    assert "times the dense mean" in shown
    assert re.search(r"cores \d+", shown)


def test_json_comes_with_the_machine(bench: Bench) -> None:
    report = json.loads(bench(*TINY_ADAPTER, "--json").stdout)
    assert {"title", "machine", "rows", "notes"} == report.keys()
    assert report["machine"]["torch"]
    assert report["rows"][0]["work"] == "server's round"


@pytest.mark.parametrize(
    ("arguments", "models"),
    [
        ((), ["cnn", "resnet18"]),
        (("--set", "model.name=mlp"), ["mlp"]),
        (("--set", "model.name=resnet18"), ["resnet18"]),
        (("--preset", "quick"), ["mlp"]),
    ],
    ids=["both", "one by name", "one of both", "the preset's"],
)
def test_overhead_is_of_both_models_unless_one_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], models: list[str]
) -> None:
    asked: list[Experiment] = []

    def measure(experiments: list[Experiment], *_: Any) -> Report:
        asked.extend(experiments)
        return Report("", [{"model": "any"}])

    monkeypatch.setattr(overhead, "measure_overheads", measure)
    bench("overhead", "--set", "rounds=7", *arguments)
    assert [experiment.model.name for experiment in asked] == models
    assert {experiment.rounds for experiment in asked} == {7}


def test_scale_draws_its_points(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[scale.Point] = []

    def measure(point: scale.Point) -> dict[str, Any]:
        asked.append(point)
        return {"clients": point.clients, "round_s": 1.0, "round_cpu_s": 0.5, "memory_mb": 2.0}

    monkeypatch.setattr(scale, "measure_in_process", measure)
    drawn = tmp_path / "scale.png"
    report = bench("scale", "--clients", "5,20", "--in-a-round", 10, "--json", "--out", drawn)
    assert [(point.clients, point.participants) for point in asked] == [(5, 5), (20, 10)]
    assert [row["clients"] for row in json.loads(report.stdout)["rows"]] == [5, 20]
    assert drawn.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--clients", "10,many"), r"--clients 10,many: expected whole numbers"),
        (("--in-a-round", "0"), r"--in-a-round 0: expected whole numbers"),
        (("--out", "scale.gif"), r"\.png, \.pdf, \.svg"),
    ],
)
def test_scale_refuses_what_it_cannot_do_before_it_measures(
    bench: Bench, arguments: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        bench("scale", *arguments)


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        (("--model", "mlp"), 3),
        (("--model", "resnet18"), 3),
        (("--model", "resnet18", "--cifar-stem"), 6),
        ((), len(FAST) - 3),
    ],
)
def test_kernels_are_measured_for_the_models_that_were_asked_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], rows: int
) -> None:
    asked: list[tuple[str, ...]] = []

    def measure(models: list[tuple[str, ...]], **_: Any) -> Report:
        asked.extend(models)
        return Report("", [{"model": "any"}])

    monkeypatch.setattr(kernels, "measure_kernels", measure)
    bench("kernels", *arguments)
    assert len(asked) == rows
    assert set(asked) <= FAST.keys()


def test_codes_are_measured_on_the_changes_of_real_clients(bench: Bench) -> None:
    """More bits leave less; what is left is owed, so later changes are harder; and the default is the best of three."""
    report = json.loads(bench("codes", "--preset", "quick", "--rounds", 2, "--json").stdout)
    rows = {(row["bits"], row["round"]): row for row in report["rows"]}
    assert sorted(rows) == [(bits, number) for bits in BITS for number in (1, 2)]
    for name in CODES:
        assert all(0 < row[name] < 1 for row in rows.values())
        assert all(rows[more, 1][name] < rows[less, 1][name] for less, more in pairwise(BITS))
        assert rows[1.0, 1][name] < rows[1.0, 2][name]
    assert all(row["levels"] < min(row["rotated"], row["sparse"]) for row in rows.values())


def test_numerics_are_measured_in_processes_of_their_own(bench: Bench) -> None:
    """All three kinds in one table, over native; portable ones end in the same state on every x86-64 CPU with AVX2."""
    settings = ("--set", "rounds=1", "--set", "clients=2", "--set", "train-limit=150")
    report = json.loads(bench("numerics", "--preset", "quick", *settings, "--repeats", 1, "--json").stdout)
    native, portable, mkl = report["rows"]
    assert (native["numerics"], native["ratio"]) == ("native", 1)
    assert portable["ratio"] > 0
    assert mkl["numerics"].endswith("MKL_CBWR=COMPATIBLE")
    if numerics.has_avx2():
        assert portable["cpu_capability"] == mkl["cpu_capability"] == "AVX2"


def test_precision_is_compared_for_layout_and_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "FORWARD_BATCH", 64)
    (row,) = precision.measure_precision(["plain CNN"], repeats=1).rows
    assert {name for name in row if name != "model"} == {
        f"{name}_{work}" for name in ("auto", "bf16") for work in ("training", "forward")
    }
    assert all(float(str(value)) > 0 for name, value in row.items() if name != "model")
