"""A comparison in every format, from numbers that are known."""

import csv
import io
import json
from dataclasses import replace

from refprotofl.report.comparison import OverSeeds
from refprotofl.report.formats import FORMATS, footnotes
from refprotofl.report.statistics import Estimate

ROW = OverSeeds(
    name="mine:Method:own.beta=0.5",
    share="adapter",
    accuracy={"personal": Estimate(0.5, 0.0125, 2)},
    values={"personal": {0: 0.499, 3: 0.501}},
    bytes={"uplink": 1000.0, "downlink": 2000.0, "one_off": 500.0, "total": 3500.0},
    local_epochs=40.0,
    steps=700.0,
    seconds=2.5,
    facts={"labels": {0: 10, 3: 12}, "kind": {0: "pca", 3: "pca"}},
    notes=("as its authors' code, not as their paper",),
    runs=("runs/a", "runs/b"),
)
LOCAL = replace(ROW, name="local", share="nothing", accuracy={"own": Estimate(0.25, None, 1)}, facts={}, notes=())


def test_json_has_the_keys_of_the_contract() -> None:
    row, _ = json.loads(FORMATS["json"]([ROW, replace(LOCAL, values={"own": {0: 0.25}})], "title"))
    assert row["name"] == "mine:Method:own.beta=0.5"
    assert row["share"] == "adapter"
    assert row["accuracy"] == {"personal": {"mean": 0.5, "half_width": 0.0125, "values": {"0": 0.499, "3": 0.501}}}
    assert row["bytes"] == {"uplink": 1000, "downlink": 2000, "one_off": 500, "total": 3500}
    assert row["runs"] == ["runs/a", "runs/b"]
    assert row["against"] is None
    assert row["facts"]["labels"] == {"0": 10, "3": 12}


def test_csv_has_plain_numbers_and_no_formulas() -> None:
    text = FORMATS["csv"]([ROW, replace(LOCAL, name="=local")], "title")
    mine, local = csv.DictReader(io.StringIO(text))
    assert (mine["personal"], mine["personal_half_width"], mine["own"]) == ("0.5", "0.0125", "")
    assert (mine["total_bytes"], mine["local_epochs"], mine["steps"], mine["seeds"]) == ("3500.0", "40.0", "700.0", "2")
    assert (local["method"], local["own"], local["own_half_width"]) == ("'=local", "0.25", "")


def test_markdown_is_a_table_with_its_notes() -> None:
    lines = FORMATS["markdown"]([replace(ROW, name="a|b<i>"), LOCAL], "digits").splitlines()
    assert lines[0] == "digits"
    assert lines[2].startswith("| method | shares | personal | own | uplink |")
    assert lines[4].startswith(
        r"| a\|b&lt;i&gt; | adapter | 50.00 % ± 1.25 | - | 1.00 kB | 2.00 kB | 500 B | 3.50 kB |"
    )
    assert {line.replace("\\|", "").count("|") for line in lines[2:6]} == {12}
    assert lines[-1] == r"- a\|b&lt;i&gt;: as its authors' code, not as their paper"


def test_latex_escapes_what_would_break_it() -> None:
    text = FORMATS["latex"]([replace(ROW, name="a_b & 100 %")], "50 % of #1")
    assert r"\caption{50 \% of \#1}" in text
    assert r"a\_b \& 100 \% & adapter & 50.00 \% $\pm$ 1.25 & 1.00 kB" in text


def test_facts_are_of_all_seeds() -> None:
    assert footnotes([ROW]) == [
        "mine:Method:own.beta=0.5: labels 10 (seed 0), 12 (seed 3); kind pca",
        "mine:Method:own.beta=0.5: as its authors' code, not as their paper",
    ]


def test_a_compressor_that_departs_from_its_paper_is_noted_too() -> None:
    from refprotofl.experiment import Experiment

    assert Experiment().compress.notes == ()
    (note,) = Experiment(method="fedavg", compress={"name": "stc"}).compress.notes
    assert "tensor by tensor" in note
