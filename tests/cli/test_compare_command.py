"""`compare` and `methods`, called as a user does."""

import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = [
    *("--set", "train-limit=300", "--set", "clients=3", "--set", "rounds=2", "--set", "model.embedding=8"),
    *("--set", "public.per-class=2", "--workers", "1"),
]


def test_finished_runs_are_reused_and_methods_share_their_setting(refprotofl: Any, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    first = refprotofl("compare", "--methods", "lg-fedavg,local", "--seeds", "0,1", "--out", out, "--json", *TINY)
    assert first.code == 0, first.err
    stamps = {path: path.stat().st_mtime_ns for path in out.glob("*/summary.json")}
    assert len(stamps) == 4

    more = ["refprotofl:refprotofl.erpa=off:refprotofl.apud=off", "lg-fedavg", "local"]
    second = refprotofl("compare", "--methods", ",".join(more), "--seeds", "0,1", "--out", out, "--json", *TINY)
    rows = {row["name"]: row for row in json.loads(second.out)}
    assert list(rows) == more
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps  # nothing was run again
    # Same partition, initial weights and cohorts: RefProtoFL without its two parts is LG-FedAvg to the digit.
    assert rows[more[0]]["accuracy"]["personal"] == rows["lg-fedavg"]["accuracy"]["personal"]
    assert list(rows["local"]["accuracy"]["personal"]["values"]) == ["0", "1"]
    before = {row["name"]: row for row in json.loads(first.out)}
    assert before["local"] == rows["local"]


def test_a_method_of_the_users_own_with_options_and_lists_of_values(
    refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES)
    out = tmp_path / "runs"
    asked = ["own_method:TrimmedMean:own.trim=0.4", "own_method:TrimmedMean", 'fedavg:model.name=["mlp","cnn","mlp"]']
    outcome = refprotofl("compare", "--methods", ",".join(asked), "--seeds", "0", "--out", out, "--json", *TINY)
    assert outcome.code == 0, outcome.err
    assert [row["name"] for row in json.loads(outcome.out)] == asked
    experiments = [json.loads(path.read_text())["experiment"] for path in out.glob("*/summary.json")]
    found = {(plain["method"], plain.get("own", {}).get("trim"), str(plain["model"]["name"])) for plain in experiments}
    assert found == {
        ("own_method:TrimmedMean", 0.4, "mlp"),
        ("own_method:TrimmedMean", 0.1, "mlp"),
        ("fedavg", None, "['mlp', 'cnn', 'mlp']"),
    }


def test_finished_runs_are_read_without_their_data(
    refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("compare", "--methods", "lg-fedavg,local", "--seeds", "0", "--out", tmp_path / "runs", "--json", *TINY)
    first = refprotofl(*command)
    monkeypatch.setattr("refprotofl.simulation.assembly.load_dataset", lambda *_: pytest.fail("data were loaded"))
    assert json.loads(refprotofl(*command).out) == json.loads(first.out)


def test_the_table_names_protocols_and_intervals(refprotofl: Any, tmp_path: Path) -> None:
    outcome = refprotofl("compare", "--methods", "local", "--seeds", "0,1", "--out", tmp_path / "runs", *TINY)
    assert outcome.code == 0
    assert "95 % interval" in outcome.out
    assert "personal" in outcome.out
    assert "±" in outcome.out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--methods", "local,locl"], "did you mean 'local'?"),
        (["--methods", "local,local"], "named twice: local"),
        (["--methods", "local", "--seeds", "0,x"], "whole numbers with commas between"),
        (["--methods", "local", "--seeds", "1,1"], "named twice"),
        (["--methods", ","], "at least one method"),
        (["--methods", "refprotofl:share=full"], "refprotofl keeps its backbones private"),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_runs(
    refprotofl: Any, tmp_path: Path, options: list[str], sentence: str
) -> None:
    outcome = refprotofl("compare", *options, "--out", tmp_path / "runs", *TINY)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert not (tmp_path / "runs").exists()


def test_methods_are_listed_with_their_cost(refprotofl: Any) -> None:
    outcome = refprotofl("methods")
    assert outcome.code == 0
    (line,) = [line for line in outcome.out.splitlines() if "fednova" in line and "=" in line and "│" in line]
    assert "P + 1 = 17,803" in line  # the MLP's adapter on digits has 17,802 parameters
    assert "fednova: with mu above 0" in outcome.out  # its note, under the table
