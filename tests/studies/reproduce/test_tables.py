"""Tables of runs whose numbers are known."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from refprotofl.core.errors import InputError
from refprotofl.methods.catalogue import find_method
from refprotofl.report.tables import Table, as_csv, as_json, as_latex, as_markdown, write_table
from refprotofl.studies.reproduce import studies
from refprotofl.studies.reproduce.cells import read_study
from refprotofl.studies.reproduce.our_studies import our_studies
from refprotofl.studies.reproduce.paper_tables import communication, detail, overview
from refprotofl.studies.reproduce.statistics import differences
from refprotofl.studies.reproduce.studies import Grid, Results, Scope, Study, accuracy, compressors, sweep

GridOf = Callable[..., Grid]
RunAll = Callable[..., Results]

# By method over seeds 0, 1, 2. FedProto beats RefProtoFL by 1, 2, 3 points and FedAvg by 2, 1.9, 2.1; FedGH is behind
# FedProto by 1, -1, 0.6 points, which is within noise.
VALUES = {
    "RefProtoFL": (0.50, 0.60, 0.70),
    "FedProto": (0.51, 0.62, 0.73),
    "FedAvg": (0.49, 0.601, 0.709),
    "FedGH": (0.50, 0.63, 0.724),
}
METHODS = ("refprotofl", "fedproto", "fedavg:share=full", "fedgh")


def values(dataset: str, label: str, seed: int) -> float | None:
    return VALUES[label][seed] if label in VALUES else None


def standard(*datasets: str, alphas: tuple[float, ...] = (0.5,), methods: tuple[str, ...] = METHODS) -> Study:
    """Without the controls."""
    study = accuracy(Scope(datasets or ("mnist",), alphas, methods), "standard")
    kept = [tuple(row for row in block.rows if "train-on" not in row.asked) for block in study.blocks]
    blocks = [replace(block, rows=rows) for block, rows in zip(study.blocks, kept, strict=True)]
    return replace(study, blocks=tuple(blocks))


def texts(table: Table) -> dict[str, dict[str, str]]:
    """By method and heading."""
    rows = [[entry.text for entry in row] for row in table.rows]
    return {row[0]: dict(zip(table.headings, row, strict=True)) for row in rows}


def marks(table: Table, place: int) -> dict[str, str]:
    return {row[0].text: row[place].standing for row in table.rows}


def test_differences_are_paired_and_the_best_and_what_is_level_with_it_are_marked(
    grid_of: GridOf, run_all: RunAll
) -> None:
    study = standard()
    grid = grid_of(study)
    (read,) = read_study(grid, study, run_all(grid, values), last=3)
    table = detail(read)
    shown = texts(table)
    assert shown["RefProtoFL"]["difference to RefProtoFL"] == "baseline"
    # Of 1, 2, 3 points: 4.3027 x 1 / sqrt 3 = 2.48.
    assert shown["FedProto"]["difference to RefProtoFL"] == "+2.00 ± 2.48 (within noise)"
    assert shown["FedProto"]["personal"] == "62.00 % ± 27.33"
    assert marks(table, 2) == {
        "FedAvg": "behind",
        "FedProto": "best",
        "FedGH": "within noise",
        "RefProtoFL": "within noise",
    }
    assert {standing for place in (1, 3, 4) for standing in marks(table, place).values()} == {"behind"}
    assert (shown["FedProto"]["paper"], shown["FedProto"]["against the paper"]) == ("87.68 %", "smaller setting")
    assert shown["FedAvg"]["shares"] == "full"
    (record,) = [one for one in table.records if one["method"] == "FedProto"]
    assert record["difference"] == pytest.approx(0.02)
    assert (record["seed_0"], record["seed_2"], record["against"]) == (0.51, 0.73, "RefProtoFL")
    assert record["points_to_paper"] == pytest.approx(62 - 87.68)


def test_bytes_are_set_against_whole_models_both_ways(grid_of: GridOf, run_all: RunAll) -> None:
    study = standard()
    grid = grid_of(study)
    results = run_all(grid, values)
    # FedGH's model has outputs of its own: FedAvg's has 100 parameters all the same.
    (block,) = study.blocks
    row = next(row for row in block.rows if row.label == "FedGH")
    for seed in grid.seeds:
        one = results[grid.cell(study, block, row, seed).experiment.hash]["summary"]
        one["full_model"] = {"parameters": 150, "participations": 20}
    (read,) = read_study(grid, study, results, last=3)
    shown = texts(communication(read))
    assert shown["FedAvg"]["of FedAvg's"] == "0.087"  # 35 bytes of 4 x 100 x 1 up; the first broadcast costs nothing
    assert shown["FedGH"]["of FedAvg's"] == "0.003"  # 35 bytes of 4 x 100 x 20 up, and half of it down
    assert shown["FedAvg"]["bytes total"] == "35 B"
    assert (shown["FedAvg"]["parameters up"], shown["FedAvg"]["prototype values down"]) == ("7", "3")
    assert shown["FedAvg"]["messages"] == "5"  # two up, two down, one to join
    assert shown["RefProtoFL"]["points per megabyte"] == "1,714,285.71"  # 60 % over 35 bytes
    assert shown["RefProtoFL"]["personal"] == "60.00 % ± 24.84"


def test_what_is_missing_is_named_with_the_papers_value_next_to_it(grid_of: GridOf, run_all: RunAll) -> None:
    study = standard("mnist", "cifar10")

    def some(dataset: str, label: str, seed: int) -> float | None:
        missing = (dataset, label) == ("cifar10", "FedGH") or (dataset, label, seed) == ("mnist", "FedAvg", 2)
        return None if missing else values(dataset, label, seed)

    grid = grid_of(study)
    reads = read_study(grid, study, run_all(grid, some), last=3)
    shown = texts(overview(study, reads))
    assert shown["FedGH"]["cifar10, alpha 0.5"] == "missing [43.38]"
    assert shown["FedGH"]["average"] == "missing"
    assert shown["FedAvg"]["mnist, alpha 0.5"] == "54.55 % ± 70.52 (2 of 3 seeds) [88.18]"
    assert shown["FedAvg"]["average"] == "54.55 % ± 70.52 (2 of 3 seeds)"
    notes = overview(study, reads).notes
    lacking = "FedAvg on mnist, alpha 0.5 (2 of 3 seeds); FedGH on cifar10, alpha 0.5 (0 of 3 seeds)"
    assert notes[-1] == f"Missing runs: {lacking}"
    assert "In brackets what the paper prints, for a smaller setting: no verdict" in notes
    line = texts(detail(reads[1]))["FedGH"]
    assert (line["personal"], line["seeds"], line["paper"], line["against the paper"]) == (
        *("missing", "0 of 3", "43.38 %", "-"),
    )
    assert texts(communication(reads[1]))["FedGH"]["parameters up"] == "missing"
    (record,) = [one for one in detail(reads[1]).records if one["method"] == "FedGH"]
    assert (record["seeds"], record["missing_seeds"], record["paper"], "mean" in record) == (0, 3, 43.38, False)


def test_differences_to_the_published_methods_are_listed_once_below_the_tables(
    grid_of: GridOf, run_all: RunAll
) -> None:
    study = accuracy(Scope(("mnist",), (0.5,), ("refprotofl", "fedgh")), "standard")
    grid = grid_of(study)
    reads = read_study(grid, study, run_all(grid, lambda *_: 0.5), last=3)
    assert {"RefProtoFL", "RefProtoFL + public images"} <= set(reads[0].rows)
    listed = [
        *(f"FedGH: {note}" for note in find_method("fedgh").notes),
        *(f"RefProtoFL: {note}" for note in find_method("refprotofl").notes),
    ]
    assert len(listed) == 4
    for table in (overview(study, reads), detail(reads[0])):
        found = [note for note in table.notes if note.startswith(("FedGH", "RefProtoFL"))]
        assert sorted(found) == sorted(listed)


def test_nothing_finished_is_a_table_too(grid_of: GridOf) -> None:
    study = standard("mnist", "cifar10")
    reads = read_study(grid_of(study), study, {}, last=3)
    for table in (overview(study, reads), *map(detail, reads), *map(communication, reads)):
        assert {"missing"} <= {re.sub(r" \[.*", "", entry.text) for row in table.rows for entry in row}


def test_a_protocol_that_a_method_does_not_have_is_not_missing(grid_of: GridOf, run_all: RunAll) -> None:
    study = standard()
    grid = grid_of(study)
    results = run_all(grid, values)
    (block,) = study.blocks
    for seed in grid.seeds:
        one = results[grid.cell(study, block, block.rows[0], seed).experiment.hash]["summary"]
        one["accuracy"] = {"personal": None, "personal_before": 0.5}
    (read,) = read_study(grid, study, results, last=3)
    assert texts(detail(read))["FedAvg"]["personal"] == "-"
    assert texts(overview(study, [read]))["FedAvg"]["mnist, alpha 0.5"] == "- [88.18]"
    assert not any("Missing" in note for note in overview(study, [read]).notes)


def test_the_average_has_the_papers_next_to_it_over_its_eight_blocks(grid_of: GridOf, run_all: RunAll) -> None:
    eight = standard(*studies.DATASETS, alphas=studies.ALPHAS)
    grid = grid_of(eight, preset="paper")
    reads = read_study(grid, eight, run_all(grid, values), last=3)
    table = overview(eight, reads)
    shown = texts(table)
    assert shown["FedAvg"]["average"] == "60.00 % ± 27.20 [59.01, within noise]"
    assert shown["RefProtoFL"]["average"] == "60.00 % ± 24.84 [60.63, within noise]"
    assert marks(table, 9)["FedProto"] == "best"
    (record,) = [one for one in table.records if one["dataset"] == "average" and one["method"] == "FedAvg"]
    assert (record["mean"], record["paper"], record["seeds"]) == (pytest.approx(0.6), 59.01, 3)
    four = standard(*studies.DATASETS)
    grid = grid_of(four)
    shown = texts(overview(four, read_study(grid, four, run_all(grid, values), last=3)))
    assert shown["FedAvg"]["average"] == "60.00 % ± 27.20"


def test_verdicts_stand_in_the_papers_setting_alone(grid_of: GridOf, run_all: RunAll) -> None:
    study = standard("fashion-mnist")

    def verdicts_of(grid: Grid) -> tuple[str, str]:
        (read,) = read_study(grid, study, run_all(grid, lambda *_: 0.7382), last=3)
        entry = texts(overview(study, [read]))["FedProto"]["fashion-mnist, alpha 0.5"]
        return texts(detail(read))["FedProto"]["against the paper"], entry

    assert verdicts_of(grid_of(study, preset="paper")) == ("matches", "73.82 % ± 0.00 [73.82, matches]")
    assert verdicts_of(grid_of(study, preset="paper", seeds=(0, 1))) == ("+0.00", "73.82 % ± 0.00 [73.82, +0.00]")
    assert verdicts_of(grid_of(study, preset="full")) == ("smaller setting", "73.82 % ± 0.00 [73.82]")
    changed = grid_of(study, preset="paper", settings=("rounds=2",))
    assert verdicts_of(changed) == ("changed setting", "73.82 % ± 0.00 [73.82]")
    tuned = grid_of(study, preset="paper", tuned={"fashion-mnist": {"fedproto": ["train.lr=0.3"]}})
    assert verdicts_of(tuned) == ("changed setting", "73.82 % ± 0.00 [73.82]")
    others = grid_of(study, preset="paper", tuned={"fashion-mnist": {"fedgh": ["train.lr=0.3"]}})
    assert verdicts_of(others) == ("matches", "73.82 % ± 0.00 [73.82, matches]")


def test_every_row_is_set_against_every_other(grid_of: GridOf, run_all: RunAll) -> None:
    study = standard()
    grid = grid_of(study)
    (read,) = read_study(grid, study, run_all(grid, values), last=3)
    shown = texts(differences(read))
    assert shown["FedProto"]["RefProtoFL"] == "+2.00 ± 2.48"
    assert shown["RefProtoFL"]["FedProto"] == "-2.00 ± 2.48"
    # 2, 1.9, 2.1 points: 4.3027 x 0.1 / sqrt 3 = 0.25; p = 0.00083, times the six pairs of four rows.
    assert shown["FedProto"]["FedAvg"] == "+2.00 ± 0.25*"
    assert shown["FedAvg"]["FedProto"] == "-2.00 ± 0.25*"
    assert shown["FedAvg"]["FedAvg"] == ""
    (record,) = [one for one in differences(read).records if (one["method"], one["against"]) == ("FedProto", "FedAvg")]
    assert record["difference"] == pytest.approx(0.02)
    assert record["p_holm"] == pytest.approx(6 * record["p"])
    assert record["pairs"] == 3
    assert record["verdict"] is None
    assert (
        "*: p below 0.05, corrected by Holm over the 6 pairs of this table, each counted once"
        in differences(read).notes
    )


def test_with_a_margin_rows_and_the_baseline_have_verdicts(grid_of: GridOf, run_all: RunAll) -> None:
    """FedProto is 2 ± 2.48 points above RefProtoFL, FedAvg 2 ± 0.25 below FedProto."""
    study = standard()
    grid = grid_of(study, margin=0.01)
    (read,) = read_study(grid, study, run_all(grid, values), last=3)
    shown = texts(detail(read))["FedProto"]
    assert shown["verdict"] == "not worse by more than the margin"
    assert shown["verdict of RefProtoFL"] == "undecided"
    assert texts(detail(read))["RefProtoFL"]["verdict"] == "-"
    assert any(note.startswith("Verdict, by the 95 % interval and a margin of 1 point,") for note in detail(read).notes)
    (record,) = [one for one in detail(read).records if one["method"] == "FedProto"]
    assert (record["margin"], record["baseline_verdict"]) == (0.01, "undecided")
    pairs = {(one["method"], one["against"]): one["verdict"] for one in differences(read).records}
    assert (pairs["FedProto", "FedAvg"], pairs["FedAvg", "FedProto"]) == ("better", "worse")
    assert "verdict" not in detail(read_study(grid_of(study), study, run_all(grid, values), last=3)[0]).headings


def test_protocols_that_differ_are_columns_and_their_models_are_named(grid_of: GridOf, run_all: RunAll) -> None:
    (study, *_) = our_studies("thin", Scope(("mnist",), (0.5,), ("thin", "fedpac")))
    grid = grid_of(study)
    results = run_all(grid, lambda *_: 0.5)
    (block,) = study.blocks
    for row in block.rows:
        for seed in grid.seeds:
            shown = results[grid.cell(study, block, row, seed).experiment.hash]["summary"]
            shown["accuracy"] |= {"own": 0.75} | ({"global": 0.625} if row.label == "thin" else {})
    (read,) = read_study(grid, study, results, last=3)
    table = detail(read)
    assert table.headings[2:5] == ("global", "personal", "own")
    assert [texts(table)["thin"][one] for one in table.headings[2:5]] == [
        "62.50 % ± 0.00",
        "50.00 % ± 0.00",
        "75.00 % ± 0.00",
    ]
    assert [texts(table)["FedPAC"][one] for one in table.headings[2:4]] == ["-", "50.00 % ± 0.00"]
    (note,) = [note for note in table.notes if note.startswith("Different models")]
    assert note.endswith("which differs from it in thin")


def test_the_user_names_the_row_that_others_are_set_against(grid_of: GridOf, run_all: RunAll) -> None:
    study = standard("mnist", "cifar10")
    grid = grid_of(study, against="FedAvg")
    reads = read_study(grid, study, run_all(grid, values), last=3)
    assert texts(detail(reads[0]))["FedProto"]["difference to FedAvg"] == "+2.00 ± 0.25 (p 0.002)"
    average = [one for one in overview(study, reads).records if one["dataset"] == "average"]
    (record,) = [one for one in average if one["method"] == "FedProto"]
    assert (record["against"], record["difference"]) == ("FedAvg", pytest.approx(0.02))


def test_bytes_are_set_against_the_first_fedavg_and_the_cheapest_near_it(grid_of: GridOf, run_all: RunAll) -> None:
    (study, *_) = our_studies("thin", Scope(("mnist",), (0.5,)))
    grid = grid_of(study)
    scores = {"FedAvg, 10 rounds of 1 epoch": 0.68, "FedAvg, 10 rounds of 2 epochs": 0.695}
    results = run_all(grid, lambda _, label, seed: scores.get(label, 0.7))
    (block,) = study.blocks
    sent = {"FedAvg": 4000, "FedAvg, 10 rounds of 1 epoch": 1000, "FedAvg, 10 rounds of 2 epochs": 2000, "thin": 20}
    for row in block.rows:
        for seed in grid.seeds:
            shown = results[grid.cell(study, block, row, seed).experiment.hash]["summary"]
            shown["accuracy"]["global"] = shown["accuracy"]["personal"]
            shown["communication"]["uplink"] = {
                **shown["communication"]["uplink"],
                "payload_bytes": sent.get(row.label, 5000) - 25,
            }
    (read,) = read_study(grid, study, results, last=3)
    told_rows = texts(detail(read))
    assert read.cheapest == "FedAvg, 10 rounds of 2 epochs"  # one of 1000 bytes is two points below
    assert told_rows["thin"]["total, of that of FedAvg"] == "1/200"
    assert told_rows["thin"]["total, of that of FedAvg, 10 rounds of 2 epochs"] == "1/100"
    assert told_rows["FedAvg, 10 rounds of 2 epochs"]["total, of that of FedAvg"] == "0.50"
    short = next(row for row in block.rows if row.label == "FedAvg, 10 rounds of 1 epoch")
    lucky, *others = (grid.cell(study, block, short, seed).experiment.hash for seed in grid.seeds)
    results[lucky]["summary"]["accuracy"]["global"] = 0.9
    (read,) = read_study(grid, study, {one: results[one] for one in results if one not in others}, last=3)
    assert read.cheapest == "FedAvg, 10 rounds of 2 epochs"  # one seed of several tells nothing
    (read,) = read_study(grid, study, {}, last=3)
    assert not [one for one in detail(read).headings if one.startswith("total, of")]


def test_a_table_at_equal_bytes_says_how_equal_they_are(grid_of: GridOf, run_all: RunAll) -> None:
    study = compressors(Scope(("mnist",), (0.5,)))
    grid = grid_of(study)
    (read,) = read_study(grid, study, run_all(grid, lambda *_: 0.7), last=3)
    assert {row["up, of RefProtoFL's"] for row in texts(detail(read)).values()} == {"1.000"}


def test_tuned_rows_are_listed_with_their_settings(grid_of: GridOf, run_all: RunAll) -> None:
    study = standard()
    chosen = {"mnist": {"fedavg:share=full": ["train.lr=0.2"], "refprotofl": ["refprotofl.align=10.0", "train.lr=0.5"]}}
    ends = {"mnist": {"fedavg:share=full": ("train.lr",), "refprotofl": ("refprotofl.align", "train.momentum")}}
    grid = grid_of(study, tuned=chosen, settings=("rounds=3",), ends=ends)
    (read,) = read_study(grid, study, run_all(grid, values), last=3)
    at_an_end = (
        "Chosen at an end of its grid, beyond which better values may lie: mnist, train.lr=0.2 (FedAvg); "
        "mnist, refprotofl.align=10.0 (RefProtoFL)"
    )
    note = (
        "Tuned on validation data; the other rows have the preset's settings: mnist, FedAvg: train.lr=0.2; "
        "mnist, RefProtoFL: refprotofl.align=10.0, train.lr=0.5"
    )
    borrowed = replace(read, grid=replace(grid, chosen_on={"mnist": "cifar10", "digits": "cifar10"}))
    told_on = [one for one in detail(borrowed).notes if "were chosen on" in one]
    assert told_on == ["The settings of mnist were chosen on cifar10"]
    for table in (detail(read), overview(study, [read]), communication(read)):
        assert note in table.notes
        assert at_an_end in table.notes
        assert {one["method"]: one["at_an_end"] for one in table.records}["RefProtoFL"] == "refprotofl.align=10.0"
        assert "Settings that differ from the preset: rounds=3" in table.notes
        shown = {record["method"]: record["tuned"] for record in table.records}
        assert shown["RefProtoFL"] == "refprotofl.align=10.0; train.lr=0.5"
        assert shown["FedProto"] == ""


@pytest.mark.parametrize(
    ("facts", "difference"),
    [
        (
            {"origin": {"results": 2, "data": "mnist", "code": {}}},
            "their version of refprotofl, which computes other numbers",
        ),
        ({"origin": {"results": 1, "data": "other", "code": {}}}, "their data"),
    ],
)
def test_runs_that_are_not_comparable_are_refused_by_name(
    grid_of: GridOf, run_all: RunAll, facts: dict[str, Any], difference: str
) -> None:
    study = standard()
    grid = grid_of(study)
    results = dict(run_all(grid, values))
    name = next(iter(results))
    results[name] = {**results[name], **facts}  # type: ignore[typeddict-item]
    with pytest.raises(InputError, match=f"are not comparable: they differ in {difference}"):
        read_study(grid, study, results, last=3)


def test_runs_of_other_settings_are_refused_by_name(grid_of: GridOf, run_all: RunAll) -> None:
    study = standard()
    grid = grid_of(study)
    results = run_all(grid, values)
    next(iter(results.values()))["summary"]["experiment"]["rounds"] = 7
    with pytest.raises(InputError, match="are not comparable: they differ in rounds"):
        read_study(grid, study, results, last=3)


def test_one_row_alone_is_not_the_best_of_anything(grid_of: GridOf, run_all: RunAll) -> None:
    study = standard(methods=("fedproto",))
    grid = grid_of(study)
    (read,) = read_study(grid, study, run_all(grid, values), last=3)
    assert marks(detail(read), 2) == marks(overview(study, [read]), 1) == {"FedProto": "behind"}
    assert "difference to FedProto" in detail(read).headings  # there is no RefProtoFL to pair it with


@pytest.fixture
def tables(grid_of: GridOf, run_all: RunAll) -> list[Table]:
    study = standard("mnist", "cifar10")
    grid = grid_of(study)
    reads = read_study(grid, study, run_all(grid, values), last=3)
    swept = sweep(Scope(("mnist",), (0.5,)), "refprotofl.keep")
    other = grid_of(swept)
    more = read_study(other, swept, run_all(other, lambda dataset, label, seed: 0.5 + 0.01 * seed), last=3)
    shown = [overview(study, reads), *map(detail, reads), *map(communication, reads), *map(detail, more)]
    hostile = replace(shown[0], title="a_b & {c} 100 % #1 \\x ~^", notes=("50 % <b> _x_ |",))
    return [*shown, hostile]


def test_latex_has_balanced_braces_and_as_many_cells_in_each_row(tables: list[Table]) -> None:
    for table in tables:
        text = re.sub(r"\\[&%$#_{}]", "", as_latex(table))  # escaped signs count for nothing
        assert text.count("{") == text.count("}")
        assert text.count("$") % 2 == 0
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert len(rows) == len(table.rows) + 1
        assert {line.count("&") for line in rows} == {len(table.headings) - 1}
        assert re.search(rf"\\begin{{tabular}}{{[lr]{{{len(table.headings)}}}}}", text)
        assert [text.count(f"\\{rule}rule") for rule in ("top", "mid", "bottom")] == [1, 1, 1]
        assert not re.search(r"[%#_~^<>]", re.sub(r"\\[a-z]+(\{\})?", "", text))


def test_the_best_is_bold_and_what_is_level_with_it_marked_in_both_texts(tables: list[Table]) -> None:
    markdown, latex = as_markdown(tables[0]), as_latex(tables[0])
    assert r"**62.00 % ± 27.33 \[87.68\]**" in markdown
    assert r"60.00 % ± 24.84 \[88.46\] †" in markdown
    assert r"\textbf{62.00 \% $\pm$ 27.33 [87.68]}" in latex
    assert r"60.00 \% $\pm$ 24.84 [88.46]\textdagger{}" in latex
    assert r"& $-$" not in as_latex(tables[0])
    assert "`" not in markdown.splitlines()[0] + latex
    for table in tables:
        lines = [line for line in as_markdown(table).splitlines() if line.startswith("|")]
        assert {line.replace("\\|", "").count("|") for line in lines} == {len(table.headings) + 1}


def test_csv_and_json_say_the_same(tables: list[Table]) -> None:
    for table in tables:
        lines = list(csv.DictReader(io.StringIO(as_csv(table))))
        rows = json.loads(as_json(table))["rows"]
        assert [line["method"] for line in lines] == [row["method"] for row in rows]
        for line, row in zip(lines, rows, strict=True):
            assert {name: line[name] for name in row} == {
                name: "" if value is None else str(value) for name, value in row.items()
            }
    shown = json.loads(as_json(tables[0]))
    assert (shown["variant"], shown["protocol"], shown["preset"], shown["seeds"]) == (
        "standard",
        "personal",
        "small",
        [0, 1, 2],
    )


def test_a_table_is_written_in_all_formats_side_by_side(tables: list[Table], tmp_path: Path) -> None:
    paths = write_table(tmp_path / "tables", tables[0])
    assert [path.name for path in paths] == [f"accuracy-standard.{end}" for end in ("md", "tex", "csv", "json")]
    assert paths[0].read_text(encoding="utf-8") == as_markdown(tables[0])
