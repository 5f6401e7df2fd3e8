"""`compare` and `methods`, called as a user does."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refprotofl.federation import session as simulation
from refprotofl.studies.rows import Row
from refprotofl.studies.trials import Base

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = [
    *("--set", "train-limit=300", "--set", "clients=3", "--set", "rounds=2", "--set", "model.embedding=8"),
    *("--set", "public.per-class=2", "--workers", "1"),
]


def run_folders(out: Path) -> list[Path]:
    """All but the report and the tables."""
    return [path for path in out.iterdir() if path.is_dir() and path.name != "tables"]


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
    assert {**before["local"], "against": None} == {**rows["local"], "against": None}
    assert (before["local"]["against"]["baseline"], rows["local"]["against"]["baseline"]) == ("lg-fedavg", more[0])
    same = rows["lg-fedavg"]["against"]
    assert (same["mean"], same["half_width"], same["p"], same["within_noise"]) == (0, 0, 1, True)


def test_a_method_of_the_users_own_with_options_and_lists_of_values(
    refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES)
    out = tmp_path / "runs"
    asked = [
        "own_method:TrimmedMean:own.trim=0.4",
        "own_method:TrimmedMean",
        'lg-fedavg:model.name=["mlp","cnn","mlp"]',
    ]
    outcome = refprotofl("compare", "--methods", ",".join(asked), "--seeds", "0", "--out", out, "--json", *TINY)
    assert outcome.code == 0, outcome.err
    assert [row["name"] for row in json.loads(outcome.out)] == asked
    experiments = [json.loads(path.read_text())["experiment"] for path in out.glob("*/summary.json")]
    found = {(plain["method"], plain.get("own", {}).get("trim"), str(plain["model"]["name"])) for plain in experiments}
    assert found == {
        ("own_method:TrimmedMean", 0.4, "mlp"),
        ("own_method:TrimmedMean", 0.1, "mlp"),
        ("lg-fedavg", None, "['mlp', 'cnn', 'mlp']"),
    }


def test_finished_runs_are_read_without_their_data(
    refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("compare", "--methods", "lg-fedavg,local", "--seeds", "0", "--out", tmp_path / "runs", "--json", *TINY)
    first = refprotofl(*command)
    monkeypatch.setattr("refprotofl.data.federated.load_dataset", lambda *_: pytest.fail("data were loaded"))
    assert json.loads(refprotofl(*command).out) == json.loads(first.out)


def test_the_table_names_protocols_and_intervals(refprotofl: Any, tmp_path: Path) -> None:
    outcome = refprotofl("compare", "--methods", "local", "--seeds", "0,1", "--out", tmp_path / "runs", *TINY)
    assert outcome.code == 0
    assert "95 % interval" in outcome.out
    assert "personal" in outcome.out
    assert "±" in outcome.out


def test_rows_are_set_against_the_one_that_is_named(
    refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "local,fedavg:share=full,lg-fedavg"
    options = ("--seeds", "0,1", "--set", "evaluate.every=1", "--out", tmp_path / "runs", *TINY)
    command = ("compare", "--methods", asked, *options)
    reported = json.loads(refprotofl(*command, "--against", "fedavg:share=full", "--json").out)
    rows = {row["name"]: row for row in reported}
    assert rows["fedavg:share=full"]["against"] is None
    found = rows["local"]["against"]
    values = [rows[name]["accuracy"]["personal"]["values"] for name in ("local", "fedavg:share=full")]
    assert found["mean"] == pytest.approx(sum(values[0][seed] - values[1][seed] for seed in "01") / 2)
    assert (found["baseline"], found["protocol"], found["seeds"]) == ("fedavg:share=full", "personal", 2)
    assert found["within_noise"] is (abs(found["mean"]) <= found["half_width"]) is (found["p"] >= 0.05)
    assert found["p"] <= found["p_holm"] <= 2 * found["p"]
    assert rows["local"]["last"]["personal"]["evaluations"] == 2  # of three, no run has more
    summaries = [json.loads((Path(run) / "summary.json").read_text()) for run in rows["local"]["runs"]]
    by_client = [one["accuracy_per_client"]["personal"] for one in summaries]
    assert rows["local"]["worst"]["personal"] == pytest.approx(np.mean([min(one) for one in by_client]))
    assert rows["local"]["client_spread"]["personal"] == pytest.approx(np.mean([np.std(one) for one in by_client]))

    named = ("compare", "--methods", "alone = local,whole = fedavg:share=full,lg-fedavg", *options)
    called = json.loads(refprotofl(*named, "--against", "whole", "--json").out)
    assert [row["name"] for row in called] == ["alone", "whole", "lg-fedavg"]
    assert [row["asked"] for row in called] == ["local", "fedavg:share=full", "lg-fedavg"]
    assert "- whole: fedavg:share=full" in refprotofl(*named, "--format", "markdown").out
    assert called[0]["against"] == {**found, "baseline": "whole"}  # of the same runs
    assert refprotofl("compare", "--methods", "one = local,one = lg-fedavg", *options).code == 2

    unpaired = json.loads(refprotofl(*command, "--against", "none", "--json").out)
    assert [row["against"] for row in unpaired] == [None] * 3
    monkeypatch.setattr("refprotofl.cli.output.out.width", 200)
    shown = refprotofl(*command).out
    for heading in ("difference", "last 2", "worst client", "spread"):
        assert heading in shown
    assert "headline: personal" in shown
    assert "difference: to local" in shown
    assert "Holm-corrected for 2 differences" in shown
    assert "difference" not in refprotofl(*command, "--against", "none").out
    full = ("compare", "--methods", "fedavg:share=full,fedprox:share=full", *options, "--seeds", "0")
    assert "headline: global" in refprotofl(*full).out
    assert "(one seed)" in refprotofl(*full).out


def test_runs_on_data_that_changed_meanwhile_do_not_go_into_one_table(
    refprotofl: Any, make_npz: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, real = make_npz([0, 1, 2] * 20), simulation.run

    def run_and_edit(*arguments: Any, **options: Any) -> Any:
        finished = real(*arguments, **options)
        arrays = dict(np.load(file))
        np.savez(file, **(arrays | {"y_test": 2 - arrays["y_test"]}))
        return finished

    monkeypatch.setattr("refprotofl.studies.pool.run", run_and_edit)
    options = ["--set", f"dataset={file}", "--set", "clients=2", "--set", "min-size=5", "--set", "rounds=1"]
    outcome = refprotofl("compare", "--methods", "local,fedproto", "--seeds", "0", "--out", tmp_path / "runs", *options)
    assert outcome.code == 2
    assert "are not comparable: they differ in their data." in outcome.err


def test_what_was_really_run_is_shown(refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "fedavg,fedavg:share=adapter,fedproto,fast,fedrep,fednova"
    command = ("compare", "--methods", asked, "--seeds", "0,1", "--out", tmp_path / "runs", *TINY)
    rows = {row["name"]: row for row in json.loads(refprotofl(*command, "--format", "json").out)}
    shares = ["full", "adapter", "nothing", "full", "backbone, feature", "full"]
    assert [row["share"] for row in rows.values()] == shares
    for row in rows.values():
        sent = row["bytes"]
        assert sent["total"] == sent["uplink"] + sent["downlink"] + sent["one_off"]
        summaries = [json.loads((Path(run) / "summary.json").read_text()) for run in row["runs"]]
        assert [one["experiment"]["seed"] for one in summaries] == [0, 1]
        assert list(row["accuracy"]["own"]["values"].values()) == [one["accuracy"]["own"] for one in summaries]
    # 3 clients, 2 rounds, 2 epochs; FedRep adds one of the head alone.
    assert (rows["fedavg"]["local_epochs"], rows["fedrep"]["local_epochs"]) == (12, 18)
    assert set(rows["fast"]["facts"]["oracle_labels"]) == {"0", "1"}

    monkeypatch.setattr("refprotofl.cli.output.out.width", 200)
    shown = refprotofl(*command).out
    assert "fast: embedder pca; oracle labels" in shown
    assert "fednova: with mu above 0" in shown
    for heading in ("shares", "uplink", "downlink", "one-off", "total", "local epochs", "seconds"):
        assert heading in shown


def test_folders_are_named_by_method_data_and_seed(refprotofl: Any, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    command = ("compare", "--methods", "local", "--seeds", "0", "--out", out, "--json", *TINY)
    assert refprotofl(*command).code == 0
    (folder,) = run_folders(out)
    assert re.fullmatch("local-digits-seed0-[0-9a-f]{8}", folder.name)
    assert Base(settings=tuple(TINY[1:10:2])).trial(Row("local", "local"), 0, out).folder == folder


def test_interrupted_it_says_what_is_kept_and_how_to_resume(
    refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, begun = simulation.run, []

    def run(experiment: Any, **options: Any) -> Any:
        begun.append(experiment.seed)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return real(experiment, **options)

    command = ("compare", "--methods", "local", "--seeds", "0,1", "--out", tmp_path / "runs", *TINY)
    monkeypatch.setattr("refprotofl.studies.pool.run", run)
    outcome = refprotofl(*command)
    assert outcome.code == 130
    kept = f"Interrupted. Finished and kept in {tmp_path / 'runs'}: 1 of 2 runs. The same command resumes."
    assert kept in outcome.err
    assert refprotofl(*command).code == 0
    assert begun == [0, 1, 1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--methods", "local,locl"], "did you mean 'local'?"),
        (["--methods", "local,local"], "named twice: local"),
        (["--methods", "local", "--seeds", "0,x"], "whole numbers separated by commas"),
        (["--methods", "local", "--seeds", "4-0"], "4-0 is not a range of 1 to 10,000 seeds from low to high"),
        (["--methods", "local", "--seeds", "1,1"], "named twice"),
        (["--methods", ","], "at least one method"),
        (["--methods", "refprotofl:share=full"], "refprotofl keeps its backbones private"),
        (["--methods", "local,fedavg", "--against", "fedprox"], "allowed are none and the rows: local, fedavg"),
        (["--methods", "local,local:dataset=mnist"], "are not comparable: they differ in dataset"),
        (["--methods", "local", "--last", "1"], "1 is not in the range x>=2"),
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
    for listed, shares, cost in (
        (outcome, "full", "P + 1 = 68,107"),  # the MLP of digits has 68,106 parameters, its adapter 17,802
        (refprotofl("methods", "--set", "share=adapter"), "adapter", "P + 1 = 17,803"),
    ):
        lines = [line for line in listed.out.splitlines() if "│ fednova " in line]
        assert any(f"│ {shares} " in line for line in lines)
        assert any(cost in line for line in lines)
    assert "fednova: with mu above 0" in outcome.out  # its note, under the table


def personal(outcome: Any) -> float:
    assert outcome.code == 0, outcome.err
    return float(json.loads(outcome.out)[0]["accuracy"]["personal"]["mean"])


def test_other_labels_are_another_run(refprotofl: Any, make_npz: Any, tmp_path: Path) -> None:
    file = make_npz([0, 1, 2] * 20)
    options = ["--set", f"dataset={file}", "--set", "clients=2", "--set", "min-size=5", "--set", "rounds=3"]
    command = ("compare", "--methods", "local", "--seeds", "0", "--out", tmp_path / "runs", "--json", *options)
    first = refprotofl(*command)
    assert "reused" not in first.err
    again = refprotofl(*command)
    assert "Reused 1 of 1 runs" in again.err
    assert json.loads(again.out) == json.loads(first.out)
    arrays = dict(np.load(file))
    whole = file.read_bytes()
    np.savez(file, **(arrays | {"y_test": 2 - arrays["y_test"]}))
    flipped = refprotofl(*command)
    assert "reused" not in flipped.err
    assert personal(flipped) < personal(first)
    file.write_bytes(whole)
    for known in (refprotofl(*command), refprotofl(*command)):
        assert "Reused 1 of 1 runs" in known.err
        assert personal(known) == personal(first)
    assert len(run_folders(tmp_path / "runs")) == 2


def test_an_edited_method_is_another_run(refprotofl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    command = ("compare", "--methods", "edited:Own", "--seeds", "0", "--out", tmp_path / "runs", "--json", *TINY)
    reported = []
    code = """
from refprotofl.methods import find_method

class Own:
    server = find_method("fedavg").server
    client = find_method("fedavg").client
    shared = """
    for shared in ("head", "head", "backbone", "head"):
        Path("edited.py").write_text(f"{code}('{shared}',)\n")
        sys.modules.pop("edited", None)
        outcome = refprotofl(*command)
        reported.append((personal(outcome), "Reused 1 of 1 runs" in outcome.err))
    sys.modules.pop("edited", None)
    assert [reused for _, reused in reported] == [False, True, False, True]
    assert reported[0][0] == reported[1][0] == reported[3][0] != reported[2][0]


def test_a_margin_is_a_share_of_1_and_gives_each_row_a_verdict(refprotofl: Any, tmp_path: Path) -> None:
    command = ("compare", "--methods", "local,lg-fedavg", "--seeds", "0,1", "--out", tmp_path / "runs", *TINY)
    plain = refprotofl(*command, "--json")
    assert plain.code == 0, plain.err
    assert [json.loads(plain.out)[1]["against"][key] for key in ("margin", "verdict")] == [None, None]
    judged = json.loads(refprotofl(*command, "--json", "--margin", "0.9").out)
    assert judged[1]["against"]["verdict"] == judged[1]["against"]["by_protocol"]["personal"]["verdict"] is not None
    assert "margin of 90 points" in re.sub(r"\s+", " ", refprotofl(*command, "--margin", "0.9").out)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--margin", "1"), "--margin 1: expected a share of 1, such as 0.01 for one point of accuracy."),
        (("--margin", "nan"), "--margin nan: expected a share of 1"),
        (("--margin", "a point"), "--margin a point: expected a share of 1"),
        (
            ("--margin", "0.01", "--against", "none"),
            "--margin 0.01: there is no difference to judge with --against none.",
        ),
    ],
)
def test_a_margin_that_cannot_be_is_refused(
    refprotofl: Any, tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    outcome = refprotofl("compare", "--methods", "local,fedavg", "--out", tmp_path / "runs", *options, *TINY)
    assert outcome.code == 2
    assert sentence in re.sub(r"\s+", " ", outcome.err)
    assert not (tmp_path / "runs").exists()


def test_a_range_of_seeds_and_a_single_one(refprotofl: Any, tmp_path: Path) -> None:
    options = ("compare", "--methods", "local", "--json", "--out", tmp_path / "runs", *TINY)
    for named, seeds in (("--seeds=0-1", ["0", "1"]), ("--seed=1", ["1"])):  # the second one is reused
        (row,) = json.loads(refprotofl(*options, named).out)
        assert list(row["accuracy"]["personal"]["values"]) == seeds


def test_a_target_is_reported_on_samples_that_clients_hold_out(refprotofl: Any, tmp_path: Path) -> None:
    command = ("compare", "--methods", "local", "--seeds", "0", "--out", tmp_path / "runs", *TINY, "--target", "0.01")
    (row,) = json.loads(refprotofl(*command, "--json").out)
    found = row["to_target"]
    assert (found["protocol"], found["target"], found["reached"]) == ("personal", 0.01, 1)
    assert found["rounds"] >= 1
    assert found["seconds"] > 0
    (folder,) = row["runs"]
    assert json.loads((Path(folder) / "experiment.json").read_text())["validation"] == 0.1
    assert "rounds to 1.00 % personal" in refprotofl(*command, "--format", "markdown").out


def test_several_experiments_have_a_table_and_a_folder_each(refprotofl: Any, tmp_path: Path) -> None:
    for name, alpha in (("one", 0.5), ("two", 5)):
        (tmp_path / f"{name}.toml").write_text(f'dataset = "digits"\nalpha = {alpha}\n[model]\nname = "mlp"\n')
    files = [tmp_path / "one.toml", tmp_path / "two.toml"]
    options = ("--methods", "local", "--seeds", "0", "--out", tmp_path / "runs", *TINY)
    outcome = refprotofl("compare", *files, *options)
    assert outcome.code == 0, outcome.err
    assert [len(run_folders(tmp_path / "runs" / name)) for name in ("one", "two")] == [1, 1]
    refused = refprotofl("compare", *files, "--json", *options)
    assert refused.code == 2
    assert "--format json is for one experiment, not 2" in refused.err
    refused = refprotofl("compare", files[0], tmp_path / "other" / "one.toml", *options)
    assert "Two experiments are called one" in refused.err


def test_a_target_needs_a_protocol_that_every_evaluation_scores(refprotofl: Any, tmp_path: Path) -> None:
    command = ("compare", "--methods", "local", "--seeds", "0", "--out", tmp_path / "runs", *TINY)
    refused = refprotofl(*command, "--target", "personal_before=0.01")
    assert refused.code == 2
    assert "name it in evaluate.protocols" in refused.err


def test_tuned_settings_and_kept_results_make_the_same_tables_without_runs(refprotofl: Any, tmp_path: Path) -> None:
    experiment, tuned, out = tmp_path / "mine.toml", tmp_path / "tuned.toml", tmp_path / "runs"
    experiment.write_text("rounds = 1\ntrain.lr = 0.5\n")
    tuned.write_text(
        '[search]\ndataset = "digits"\nseeds = [1]\nends = {local = ["train.lr"]}\n'
        "[fedavg]\ntrain.lr = 0.125\n[local]\ntrain.lr = 0.25\n"
    )
    command = (
        "compare",
        experiment,
        "--methods",
        "fedavg,local",
        "--protocol",
        "own",
        "--tuned",
        f"mine={tuned}",
        *TINY,
    )
    assert refprotofl(*command, "--seeds", "0", "--out", out).code == 0
    rates = {}
    for line in (out / "cells.jsonl").read_text().splitlines():
        ran = json.loads(line)["summary"]["experiment"]
        rates[ran["method"]] = ran["train"]["lr"]
    assert rates == {"fedavg": 0.125, "local": 0.25}
    kept = tmp_path / "kept" / "mine"
    kept.mkdir(parents=True)
    (out / "cells.jsonl").rename(kept / "cells.jsonl")
    again = refprotofl(
        *command, "--seeds", "0,1", "--results", kept.parent, "--no-runs", "--out", tmp_path / "again"
    )  # fmt: skip
    assert again.code == 0, again.err
    assert "mine: 2 runs missing: fedavg, seed 1; local, seed 1" in again.err
    assert "mine: its settings were chosen with seeds that results are asked for, too: 1" in again.err
    found = json.loads((tmp_path / "again" / "tables" / "mine.json").read_text())["rows"]
    assert found == json.loads((out / "tables" / "mine.json").read_text())["rows"]
    assert [row["against"]["protocol"] for row in found if row["against"]] == ["own"]
    notes = {row["name"]: row["notes"][-1] for row in found}
    assert notes == {
        "fedavg": "chosen by a search: train.lr=0.125",
        "local": "chosen by a search: train.lr=0.25 (at an end of its grid)",
    }
    assert not list((tmp_path / "again").glob("**/summary.json"))


def test_settings_for_no_experiment_of_the_comparison_are_refused(refprotofl: Any, tmp_path: Path) -> None:
    (tmp_path / "tuned.toml").write_text("[fedavg]\ntrain.lr = 0.125\n")
    outcome = refprotofl("compare", "--methods", "fedavg", "--tuned", f"other={tmp_path / 'tuned.toml'}", *TINY)
    assert outcome.code == 2
    assert "other is not among the experiments, comparison" in outcome.err
