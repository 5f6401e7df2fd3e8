"""A comparison in every format, from numbers that are known."""

import csv
import io
import json
from dataclasses import replace

import pytest

from refprotofl.report.comparison import Difference, OverSeeds, against
from refprotofl.report.formats import FORMATS, accuracies, difference, footnotes, legend
from refprotofl.report.statistics import Estimate, Paired, estimate

ROW = OverSeeds(
    name="mine:Method:own.beta=0.5",
    method="mine:Method",
    share="adapter",
    accuracy={"personal": Estimate(0.5, 0.0125, 2)},
    values={"personal": {0: 0.499, 3: 0.501}},
    worst={"personal": 0.4},
    client_spread={"personal": 0.05},
    last={"personal": Estimate(0.49, 0.02, 2)},
    evaluations=3,
    bytes={"uplink": 1000.0, "downlink": 2000.0, "one_off": 500.0, "total": 3500.0},
    local_epochs=40.0,
    steps=700.0,
    seconds=2.5,
    facts={"labels": {0: 10, 3: 12}, "kind": {0: "pca", 3: "pca"}},
    notes=("as its authors' code, not as their paper",),
    runs=("runs/a", "runs/b"),
)
LOCAL = replace(
    ROW,
    name="local",
    share="nothing",
    accuracy={"own": Estimate(0.25, None, 1)},
    values={"own": {0: 0.25}},
    worst={},
    client_spread={},
    last={},
    facts={},
    notes=(),
)


def row(name: str, *values: float, **by_protocol: dict[int, float]) -> OverSeeds:
    """Make a row with accuracies by seed, `personal` first."""
    found = {"personal": dict(enumerate(values)), **by_protocol}
    accuracy = {protocol: estimate(list(by_seed.values())) for protocol, by_seed in found.items()}
    return replace(ROW, name=name, accuracy=accuracy, values=found, facts={}, notes=())


# Against base: one is better by 4, 5, 6 points, one by 1, -1, 0; `best` and `near` are within noise of each other.
TABLE = against(
    [
        row("base", 0.5, 0.6, 0.7, own={0: 0.5, 1: 0.5, 2: 0.5}),
        row("best", 0.54, 0.65, 0.76, own={0: 0.75, 1: 0.75, 2: 0.75}),
        row("level", 0.51, 0.59, 0.7),
        row("near", 0.56, 0.63, 0.757),
    ],
    "base",
)


def test_json_has_the_keys_of_the_contract() -> None:
    row, _ = json.loads(FORMATS["json"]([ROW, LOCAL], "title"))
    assert row["name"] == "mine:Method:own.beta=0.5"
    assert row["share"] == "adapter"
    assert row["accuracy"] == {"personal": {"mean": 0.5, "half_width": 0.0125, "values": {"0": 0.499, "3": 0.501}}}
    assert row["bytes"] == {"uplink": 1000, "downlink": 2000, "one_off": 500, "total": 3500}
    assert row["runs"] == ["runs/a", "runs/b"]
    assert row["against"] is None
    assert row["facts"]["labels"] == {"0": 10, "3": 12}
    assert (row["worst"], row["client_spread"]) == ({"personal": 0.4}, {"personal": 0.05})
    assert row["last"] == {"personal": {"mean": 0.49, "half_width": 0.02, "evaluations": 3}}


def test_json_has_the_difference_to_the_baseline() -> None:
    base, best, level, _ = json.loads(FORMATS["json"](TABLE, "title"))
    assert base["against"] is None
    found = best["against"]
    assert (found["baseline"], found["protocol"]) == ("base", "personal")
    assert (found["seeds"], found["within_noise"]) == (3, False)
    assert found["mean"] == pytest.approx(0.05)
    assert found["half_width"] == pytest.approx(0.01 * 4.302652729911275 / 3**0.5)
    assert found["p"] == pytest.approx(1 - (75 / 77) ** 0.5)  # t = 5 sqrt 3, and p = 1 - t / sqrt(t² + 2)
    assert found["p_holm"] == pytest.approx(3 * found["p"])
    assert found["by_protocol"]["personal"] == {name: found[name] for name in found["by_protocol"]["personal"]}
    own = {"mean": 0.25, "half_width": 0.0, "p": 0.0, "p_holm": 0.0, "seeds": 3, "within_noise": False}
    assert found["by_protocol"]["own"] == {**own, "verdict": None}
    assert found["margin"] is None
    assert level["against"]["within_noise"] is True
    assert list(level["against"]["by_protocol"]) == ["personal"]


def test_json_claims_nothing_with_one_seed_and_nothing_without_a_common_protocol() -> None:
    _, one, other = json.loads(FORMATS["json"](against([row("a", 0.5), row("b", 0.75), LOCAL], "a"), "title"))
    nothing = {"half_width": None, "p": None, "p_holm": None, "within_noise": None, "verdict": None}
    head = {"baseline": "a", "protocol": "personal", "margin": None}
    single = {"mean": 0.25, "seeds": 1, **nothing}
    assert one["against"] == {**head, **single, "by_protocol": {"personal": single}}
    assert other["against"] == {**head, "mean": None, "seeds": 0, **nothing, "by_protocol": {}}


def test_a_margin_gives_every_difference_a_verdict() -> None:
    """Against base: +5 ± 2.48, +0 ± 2.48 and +4.9 ± 4.1 points; a margin of 2 leaves the second undecided."""

    def verdicts(margin: float) -> list[str | None]:
        rows = json.loads(FORMATS["json"](against(TABLE, "base", margin), "title"))
        assert {row["against"]["margin"] for row in rows[1:]} == {margin}
        return [row["against"]["verdict"] for row in rows[1:]]

    assert verdicts(0.03) == ["better", "not worse by more than the margin", "better"]
    assert verdicts(0.02) == ["better", "undecided", "better"]
    rows = against(TABLE, "best", 0.03)
    headings, (base, *_) = accuracies(rows)
    assert dict(zip(headings, base, strict=True))["verdict"] == "worse"
    assert any(line.startswith("Verdict, by the 95 % interval and a margin of 3 points") for line in legend(rows))
    (line, *_) = csv.DictReader(io.StringIO(FORMATS["csv"](rows, "title")))
    assert (line["personal_verdict"], line["margin"]) == ("worse", "0.03")
    assert "verdict" not in accuracies(TABLE)[0]


def test_csv_has_plain_numbers_and_no_formulas() -> None:
    text = FORMATS["csv"]([ROW, replace(LOCAL, name="=local")], "title")
    mine, local = csv.DictReader(io.StringIO(text))
    assert (mine["personal"], mine["personal_half_width"], mine["own"]) == ("0.5", "0.0125", "")
    assert (mine["total_bytes"], mine["local_epochs"], mine["steps"], mine["seeds"]) == ("3500.0", "40.0", "700.0", "2")
    assert (local["method"], local["own"], local["own_half_width"]) == ("'=local", "0.25", "")


def test_csv_has_the_difference_of_every_protocol() -> None:
    base, best, *_ = csv.DictReader(io.StringIO(FORMATS["csv"](TABLE, "title")))
    assert (base["baseline"], base["personal_difference"], base["personal_p_holm"]) == ("", "", "")
    assert (best["baseline"], best["own_difference"], best["own_difference_half_width"]) == ("base", "0.25", "0.0")
    assert (best["own_p"], best["own_p_holm"], best["own_worst"]) == ("0.0", "0.0", "")
    assert (best["personal_worst"], best["personal_client_spread"]) == ("0.4", "0.05")
    assert (best["personal_last"], best["personal_last_half_width"], best["last_evaluations"]) == ("0.49", "0.02", "3")


def test_markdown_is_a_table_with_its_notes() -> None:
    lines = FORMATS["markdown"]([replace(ROW, name="a|b<i>"), LOCAL], "digits").splitlines()
    assert lines[0] == "digits"
    assert lines[2].startswith("| method | shares | personal | last 3 | worst client | spread | own | uplink |")
    assert lines[4].startswith(
        r"| a\|b&lt;i&gt; | adapter | **50.00 % ± 1.25** | 49.00 % ± 2.00 | 40.00 % | 5.00 | - | 1.00 kB | 2.00 kB |"
    )
    assert lines[5].startswith("| local | nothing | - | - | - | - | 25.00 % | 1.00 kB |")
    assert {line.replace("\\|", "").count("|") for line in lines[2:6]} == {15}
    assert lines[-1] == r"- a\|b&lt;i&gt;: as its authors' code, not as their paper"


def test_latex_escapes_what_would_break_it() -> None:
    text = FORMATS["latex"]([replace(ROW, name="a_b & 100 %")], "50 % of #1")
    assert r"\caption{50 \% of \#1}" in text
    assert r"a\_b \& 100 \% & adapter & 50.00 \% $\pm$ 1.25 & 49.00 \% $\pm$ 2.00 & 40.00 \% & 5.00 & 1.00 kB" in text


def test_the_best_is_bold_and_what_is_within_noise_of_it_marked() -> None:
    """Whatever the baseline: `near` is 5 points from it and as good as the best."""
    shown = FORMATS["markdown"](TABLE, "digits")
    cells = {line.split(" | ")[0][2:]: line.split(" | ")[2:4] for line in shown.splitlines() if line.startswith("| ")}
    assert cells["base"] == ["60.00 % ± 24.84", "baseline"]
    assert cells["best"] == ["**65.00 % ± 27.33**", "+5.00 ± 2.48 (p 0.039)"]
    assert cells["level"] == ["60.00 % ± 23.70", "+0.00 ± 2.48 (within noise)"]
    assert cells["near"] == ["64.90 % ± 24.81 †", "+4.90 ± 4.10 (p 0.072)"]
    assert "- bold: the best personal\n- †: within noise of the best" in shown

    text = FORMATS["latex"](TABLE, "digits")
    assert r"best & adapter & \textbf{65.00 \% $\pm$ 27.33} & +5.00" in text
    assert r"near & adapter & 64.90 \% $\pm$ 24.81\textdagger{} & +4.90" in text
    assert r"\par\footnotesize \textdagger{}: within noise of the best" in text


def test_a_minus_in_latex_is_not_a_hyphen() -> None:
    text = FORMATS["latex"](against(TABLE, "best"), "digits")
    assert r"base & adapter & 60.00 \% $\pm$ 24.84 & $-$5.00 $\pm$ 2.48 (p 0.039)" in text


@pytest.mark.parametrize(
    ("pair", "p_holm", "shown"),
    [
        (Paired(0.0223, 0.0104, 0.003, 3), 0.006, "+2.23 ± 1.04 (p 0.006)"),
        (Paired(-0.0223, 0.0104, 0.0001, 3), 0.0002, "-2.23 ± 1.04 (p < 0.001)"),
        (Paired(-0.00001, 0.0104, 0.9, 3), 1.0, "+0.00 ± 1.04 (within noise)"),
        (Paired(-0.0223, None, None, 1), None, "-2.23 (one seed)"),
    ],
)
def test_differences_are_in_points_with_what_can_be_said_of_them(pair: Paired, p_holm: float, shown: str) -> None:
    assert difference(Difference(pair, p_holm)) == shown


def test_the_headline_is_global_where_all_have_it() -> None:
    rows = [row(name, 0.5, **{"global": {0: 0.75}, "own": {0: 0.25}}) for name in ("a", "b")]
    rows = [replace(one, worst={"own": 0.125, "personal": 0.5}, client_spread={"own": 0.1}) for one in rows]
    headings, (first, _) = accuracies(rows)
    assert headings == ["shares", "global", "personal", "own", "worst client", "spread"]
    assert first == ["adapter", "75.00 %", "50.00 %", "25.00 %", "12.50 %", "10.00"]
    assert legend(rows)[0] == "headline: global, the one aggregated model, on the whole test set"
    held_out = [replace(one, validation=0.1) for one in rows]
    assert legend(held_out)[0] == "headline: global, the one aggregated model, on the samples that all clients hold out"
    assert legend(rows)[1].endswith("which differs from it in every row that has global")
    assert "lowest own" in legend(rows)[-1]
    assert accuracies([*rows, row("c", 0.5)])[0][:2] == ["shares", "personal"]


def test_facts_are_of_all_seeds() -> None:
    assert footnotes([ROW]) == [
        "mine:Method:own.beta=0.5: labels 10 (seed 0), 12 (seed 3); kind pca",
        "mine:Method:own.beta=0.5: as its authors' code, not as their paper",
    ]


def test_a_compressor_that_departs_from_its_paper_is_noted_too() -> None:
    from refprotofl.experiment import Experiment
    from refprotofl.methods.compressors import create_compressor

    assert create_compressor(Experiment()).notes == ()
    (note,) = create_compressor(Experiment(method="fedavg", compress={"name": "stc"})).notes
    assert "tensor by tensor" in note
