"""`reproduce`, called as a user does: from nothing to tables and figures, and again."""

import csv
import json
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from tests.tiny import tiny_options

from refprotofl.federation import session as simulation

TINY = [*tiny_options(clients=3, evaluate={"every": 1}), "--workers", "1"]
GRID = [*TINY, "--methods", "refprotofl,local,fedavg", "--seeds", "0,1", "--alpha", "0.5"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the finished grid; the first test that needs it makes it."""
    return tmp_path_factory.mktemp("reproduce") / "out"


@pytest.fixture
def grid(refprotofl: Any, finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished grid of `accuracy`."""
    if not finished.exists():
        outcome = refprotofl("reproduce", "accuracy", "--out", finished, *GRID)
        assert outcome.code == 0, outcome.err
        # A seed: three methods and their controls in both variants; only FedAvg shares something else in the other.
        assert "16 runs, 0 of them finished before" in outcome.err
        assert "The others take about" in outcome.err
    return Path(shutil.copytree(finished, tmp_path / "out"))


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refprotofl.studies.pool.run", lambda *_, **__: pytest.fail("something was run"))
    monkeypatch.setattr("refprotofl.studies.timing.run", lambda *_, **__: pytest.fail("something was measured"))


def files(folder: Path) -> dict[str, bytes]:
    found = [path for part in ("tables/*", "figures/*", "cells.jsonl") for path in folder.glob(part)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_tables_agree_with_the_runs_that_they_are_made_of(grid: Path) -> None:
    summaries = [json.loads(path.read_text()) for path in grid.glob("runs/*/summary.json")]
    for variant, protocol, share in (
        ("standard", "personal", "full"),
        ("reconstruction", "personal_before", "adapter"),
    ):
        document = json.loads((grid / f"tables/accuracy-{variant}.json").read_text())
        assert (document["protocol"], document["preset"]) == (protocol, "quick")
        rows = {row["method"]: row for row in document["rows"]}
        labels = ("FedAvg", "RefProtoFL", "local training")
        assert {*rows} == {*labels, *(f"{label} + public images" for label in labels)}
        runs = {
            one["experiment"]["seed"]: one
            for one in summaries
            if (one["experiment"]["method"], one["experiment"]["share"]) == ("fedavg", share)
            and not one["experiment"]["public"].get("train-on", False)
        }
        row = rows["FedAvg"]
        assert {seed: one["accuracy"][protocol] for seed, one in runs.items()} == {0: row["seed_0"], 1: row["seed_1"]}
        assert row["mean"] == pytest.approx(fmean(one["accuracy"][protocol] for one in runs.values()))
        sent = [one["communication"] for one in runs.values()]
        assert row["uplink_bytes"] == fmean(one["uplink"]["payload_bytes"] for one in sent)
        ours = [rows["RefProtoFL"][f"seed_{seed}"] for seed in (0, 1)]
        assert row["difference"] == pytest.approx(fmean([row["seed_0"] - ours[0], row["seed_1"] - ours[1]]))


def test_one_shared_model_scores_the_same_by_both_protocols(grid: Path) -> None:
    """Why the standard variant can have one column."""
    rows = json.loads((grid / "tables/accuracy-standard.json").read_text())["rows"]
    shared = [row for row in rows if "global" in row]
    assert [row["method"] for row in shared] == ["FedAvg", "FedAvg + public images"]
    for row in shared:
        assert row["global"] == pytest.approx(row["mean"])


def test_every_table_is_there_in_four_formats_that_can_be_read(grid: Path) -> None:
    names = {path.stem for path in (grid / "tables").glob("*.json")}
    variants = ("standard", "reconstruction")
    ends = ("", "-digits-alpha0.5", "-digits-alpha0.5-differences")
    assert names == {f"accuracy-{variant}{end}" for variant in variants for end in ends}
    for name in names:
        table = grid / "tables" / name
        rows = json.loads(table.with_name(f"{name}.json").read_text())["rows"]
        with table.with_name(f"{name}.csv").open(newline="") as file:
            assert [line["method"] for line in csv.DictReader(file)] == [row["method"] for row in rows]
        assert "| RefProtoFL |" in table.with_name(f"{name}.md").read_text()
        assert r"\bottomrule" in table.with_name(f"{name}.tex").read_text()
    for end, head in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        figures = sorted((grid / "figures").glob(f"*.{end}"))
        bytes_of = [f"accuracy-{one}-digits-alpha0.5-bytes" for one in variants]
        curve = "accuracy-standard-digits-alpha0.5"  # the other's protocol is scored in the last round alone
        assert sorted(path.stem for path in figures) == sorted([*bytes_of, curve])
        assert all(path.read_bytes().startswith(head) for path in figures)


def test_a_second_call_runs_nothing_and_writes_the_same_bytes(refprotofl: Any, grid: Path, nothing_runs: None) -> None:
    before = files(grid)
    outcome = refprotofl("reproduce", "accuracy", "--out", grid, *GRID)
    assert outcome.code == 0, outcome.err
    assert "16 runs, 16 of them finished before" in outcome.err
    assert files(grid) == before


def test_kept_cells_alone_are_enough_for_tables(refprotofl: Any, grid: Path, nothing_runs: None) -> None:
    before = files(grid)
    for part in ("runs", "tables", "figures"):
        shutil.rmtree(grid / part)
    assert refprotofl("reproduce", "accuracy", "--out", grid, *GRID).code == 0
    assert files(grid) == before


def test_without_runs_what_is_missing_is_named(refprotofl: Any, grid: Path, nothing_runs: None) -> None:
    more = ("--seeds", "0,1,7", "--methods", "refprotofl,local,fedavg,fedproto", "--variant", "standard", "--no-runs")
    outcome = refprotofl("reproduce", "accuracy", "--out", grid, *GRID, *more)
    assert outcome.code == 0, outcome.err
    text = (grid / "tables/accuracy-standard.md").read_text()
    assert "| FedProto | missing |" in text
    assert "(2 of 3 seeds)" in text
    assert "Missing runs: FedAvg on digits, alpha 0.5 (2 of 3 seeds); FedProto on digits" in text
    rows = {row["method"]: row for row in json.loads((grid / "tables/accuracy-standard.json").read_text())["rows"]}
    assert (rows["FedProto"]["seeds"], rows["FedProto"]["missing_seeds"]) == (0, 3)


def test_a_map_takes_models_and_runs_again_what_only_results_are_kept_of(refprotofl: Any, grid: Path) -> None:
    shutil.rmtree(grid / "runs")
    command = ("reproduce", "tsne-figure", "--out", grid, *GRID)
    outcome = refprotofl(*command, "--no-runs")
    assert outcome.code == 0, outcome.err
    assert "without FedAvg, RefProtoFL, local training: it needs their run folders" in outcome.err
    assert not (grid / "runs").exists()
    assert not (grid / "figures/tsne.png").exists()
    outcome = refprotofl(*command)
    assert outcome.code == 0, outcome.err
    assert "3 runs, 0 of them finished before" in outcome.err
    assert "(digits, alpha 0.5), the same for every model" in outcome.out
    assert len(list(grid.glob("runs/*/summary.json"))) == 3
    assert (grid / "figures/tsne.pdf").exists()


def test_an_interrupted_grid_resumes(refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, begun = simulation.run, []

    def run(experiment: Any, **options: Any) -> Any:
        begun.append((experiment.method, experiment.seed))
        if len(begun) == 3:
            raise KeyboardInterrupt
        return real(experiment, **options)

    monkeypatch.setattr("refprotofl.studies.pool.run", run)
    command = (
        "reproduce",
        "curves",
        "--out",
        tmp_path / "out",
        *GRID,
        "--set",
        "rounds=1",
        "--methods",
        "local,fedproto",
    )
    outcome = refprotofl(*command)
    assert outcome.code == 130
    kept = f"Interrupted. Finished and kept in {tmp_path / 'out'}: 2 of 4 runs. The same command resumes."
    assert kept in outcome.err
    assert len((tmp_path / "out/cells.jsonl").read_text().splitlines()) == 2
    outcome = refprotofl(*command)
    assert outcome.code == 0, outcome.err
    assert "4 runs, 2 of them finished before" in outcome.err
    assert begun == [("fedproto", 0), ("local", 0), ("fedproto", 1), ("fedproto", 1), ("local", 1)]
    assert (tmp_path / "out/figures/curves-digits-alpha0.5.png").exists()
    rows = json.loads((tmp_path / "out/tables/curves.json").read_text())["rows"]
    assert [(row["method"], row["seeds"]) for row in rows] == [("FedProto", 2), ("local training", 2)]


def test_a_run_that_fails_is_reported_and_the_others_are_in_the_table(
    refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from refprotofl.core.errors import RunError

    real = simulation.run

    def run(experiment: Any, **options: Any) -> Any:
        if experiment.method == "local" and "out" in options and tmp_path in options["out"].parents:
            raise RunError("The disk is on fire.")
        return real(experiment, **options)

    monkeypatch.setattr("refprotofl.studies.pool.run", run)
    small = ("--set", "rounds=1", "--methods", "local,fedproto", "--seeds", "0")
    outcome = refprotofl("reproduce", "curves", "--out", tmp_path / "out", *GRID, *small)
    assert outcome.code == 4
    assert "digits, alpha 0.5: local training, seed 0: The disk is on fire." in outcome.err
    assert "| local training | missing |" in (tmp_path / "out/tables/curves.md").read_text()


def test_the_figure_of_partitions_takes_no_runs(refprotofl: Any, tmp_path: Path, nothing_runs: None) -> None:
    out = tmp_path / "out"
    outcome = refprotofl("reproduce", "partition-figure", "--out", out, *TINY)
    assert outcome.code == 0, outcome.err
    assert "run" not in outcome.err
    assert not (out / "tables").exists()
    assert {path.name for path in (out / "figures").iterdir()} == {"partition-digits.png", "partition-digits.pdf"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["accuracy", "--dataset", "digits,foo"], "dataset = 'foo' is unknown"),
        (["accuracy", "--dataset", "foo", "--no-runs"], "dataset = 'foo' is unknown"),
        (["accuracy", "--methods", "fedagv"], "did you mean 'fedavg'?"),
        (["ablation", "--methods", "fedagv"], "did you mean 'fedavg'?"),
        (["ablation", "--methods", "fedavg"], "reproduce ablation has no run of fedavg in the variant"),
        (["sweeps", "--variant", "reconstruction"], "reproduce sweeps has no run in the variant reconstruction."),
        (["accuracy", "--alpha", "abc"], "--alpha abc: allowed are numbers above 0"),
        (["accuracy", "--alpha", "0.5,-1"], "alpha = -1 is too small"),
        (["partition-figure", "--alpha", "-1"], "alpha = -1 is too small"),
        (["accuracy", "--seeds", "x"], "--seeds x: expected whole numbers"),
        (["accuracy", "--preset", "tiny"], "'tiny' is not one of 'quick', 'small', 'full', 'paper'"),
        (["everything"], "'everything' is not one of"),
        (["accuracy", "--set", "alpha=1"], "--set alpha: the tables are made of its values; --alpha chooses it."),
        (["accuracy", "--set", "public={train-on=true}"], "--set public.train-on: the tables are made of its values"),
        (["accuracy", "--set", "validation=0.3"], "they are scored on the test set"),
        (["accuracy", "--set", "public.train-on=true"], "they have rows with it and without"),
        (["accuracy", "--methods", "refprotofl,local:alpha=100"], "are not comparable: they differ in alpha."),
        (["accuracy", "--methods", "refprotofl,local:seed=7"], "remove the switch seed"),
        (["accuracy", "--against", "FedAwg"], "--against FedAwg: allowed are the rows' names: FedAvg, FedProx,"),
        (["accuracy", "--set", "share=full"], "--variant chooses it"),
        (["accuracy", "--set", "rounds=0"], "rounds = 0"),
        (["accuracy", "--protocol", "owm"], "--protocol owm is unknown; did you mean 'own'?"),
        (["communication", "--protocol", "own"], "it is for accuracy, ablation, sweeps, compressors, curves, thin"),
        (
            ["thin", "--protocol", "personal_before"],
            "--protocol personal_before: allowed are global, personal, own here.",
        ),
        (["accuracy", "--protocol", "own", "--variant", "reconstruction"], "no run in the variant reconstruction."),
        (["accuracy", "--tuned", "digits"], "write DATASET=FILE.toml"),
        (["accuracy", "--tuned", "digits=nowhere.toml"], "nowhere.toml"),
        (["accuracy", "--tuned", "mnist=a.toml"], "mnist is not among the data sets asked for, digits."),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    refprotofl: Any, tmp_path: Path, options: list[str], sentence: str, nothing_runs: None
) -> None:
    outcome = refprotofl("reproduce", *options, "--out", tmp_path / "out", "--workers", "1")
    assert outcome.code == 2
    assert sentence in " ".join(outcome.err.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


def test_a_method_that_a_search_does_not_know_is_said_too(refprotofl: Any, tmp_path: Path, nothing_runs: None) -> None:
    file = tmp_path / "tuned.toml"
    file.write_text('["fedagv"]\ntrain.lr = 0.1\n')
    outcome = refprotofl("reproduce", "accuracy", "--tuned", f"digits={file}", "--out", tmp_path / "out")
    assert outcome.code == 2
    assert "did you mean 'fedavg'?" in outcome.err


def test_two_searches_may_be_on_a_data_set_but_not_for_one_method(
    refprotofl: Any, tmp_path: Path, nothing_runs: None
) -> None:
    for name, methods in {"a": ("fedavg",), "b": ("local", "fedprox"), "c": ("fedprox", "fedavg")}.items():
        (tmp_path / name).write_text("".join(f'["{method}"]\ntrain.lr = 0.1\n' for method in methods))

    def asked(*names: str) -> Any:
        tuned = [part for name in names for part in ("--tuned", f"digits={tmp_path / name}")]
        return refprotofl("reproduce", "accuracy", *tuned, "--no-runs", "--out", tmp_path / "out")

    assert asked("a", "b").code == 0
    tables = (tmp_path / "out" / "tables" / "accuracy-standard-digits-alpha0.5.md").read_text()
    assert "FedAvg: train.lr=0.1" in tables
    assert "FedProx: train.lr=0.1" in tables
    outcome = asked("a", "c")
    assert outcome.code == 2
    assert "both have settings for fedavg" in " ".join(outcome.err.split())


@pytest.mark.parametrize(
    ("searched", "warning"),
    [
        ('dataset = "digits"\nseeds = [1, 2, 7]', "chosen with seeds that results are asked for, too: 1, 7."),
        ('dataset = "digits"\nseeds = [1000]', ""),
        ('dataset = "mnist"\nseeds = [1]', "chosen on mnist, not on digits."),
    ],
)
def test_settings_that_were_chosen_on_the_same_seeds_or_other_data_are_warned_of(
    refprotofl: Any, tmp_path: Path, nothing_runs: None, searched: str, warning: str
) -> None:
    file = tmp_path / "tuned.toml"
    file.write_text(f'[search]\n{searched}\n\n["fedavg"]\ntrain.lr = 0.1\n')
    more = ("--seeds", "0,1,7", "--methods", "fedavg", "--no-runs", "--out", tmp_path / "out")
    outcome = refprotofl("reproduce", "accuracy", "--tuned", f"digits={file}", *more)
    assert outcome.code == 0, outcome.err
    assert warning in outcome.err
    assert ("warning: " in outcome.err) is bool(warning)


@pytest.mark.parametrize("what", ["accuracy", "partition-figure"])
def test_data_that_are_not_here_are_code_3(refprotofl: Any, tmp_path: Path, what: str) -> None:
    outcome = refprotofl("reproduce", what, "--preset", "small", "--dataset", "mnist", "--out", tmp_path / "out")
    assert outcome.code == 3
    assert "Without a network, copy the files of mnist into DIR/mnist and pass --data DIR" in outcome.err
    assert not (tmp_path / "out").exists()
