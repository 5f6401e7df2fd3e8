"""Cells of the published tables, computed again by scipy from the published results alone."""

import itertools
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from scipy import stats

RESULTS = Path(__file__).parents[3] / "results"
Values = dict[int, float]  # by seed

TWENTY = {"rounds": 20, "train.local-epochs": 1, "public.train-on": False, "compress.name": "none"}
TWENTY |= {"finetune.epochs": None}
PUBLIC = {**TWENTY, "public.train-on": True}
FULL = {"method": "fedavg", "share": "full"}
OURS = {"method": "refprotofl", "refprotofl.erpa": True, "refprotofl.apud": True, "refprotofl.downlink": "dense"}
THIN = {
    **{"method": "thin", "rounds": 6, "train.local-epochs": 6, "public.train-on": False, "thin.cooling": 0.7},
    **{"thin.last-up-bits": 1.7, "thin.up-bits": 1.0, "thin.server-epochs": 5},
    **{"thin.balance": True, "thin.code": "levels", "thin.feedback": True, "thin.pretrain": 0, "thin.drift": "none"},
    **{"first-weights": None, "thin.distil": 1.0},
}
TUNED = {"finetune.epochs": 3, "finetune.rate": 0.1, "thin.down-bits": 1.0}
# The study whose table it is, the table, the row, the row that it is compared with, and what the runs of both have.
CELLS: list[tuple[str, str, str, str, dict[str, Any], dict[str, Any]]] = [
    (
        *("accuracy", "accuracy-standard-fashion-mnist-alpha0.5", "local training", "RefProtoFL"),
        *({"method": "local", **TWENTY}, {**OURS, **TWENTY, "refprotofl.value-type": "float32"}),
    ),
    (
        *("accuracy", "accuracy-standard-cifar10-alpha0.5", "FedAvg + public images", "RefProtoFL"),
        *({**FULL, **PUBLIC}, {**OURS, **TWENTY}),
    ),
    (
        *("accuracy", "accuracy-standard-mnist-alpha0.5", "FedGH", "RefProtoFL"),
        *({"method": "fedgh", **TWENTY}, {**OURS, **TWENTY}),
    ),
    (
        *("accuracy", "accuracy-standard-cifar100-alpha0.5", "FAST", "RefProtoFL"),
        *({"method": "fast", **TWENTY}, {**OURS, **TWENTY}),
    ),
    (
        *("accuracy-own", "accuracy-standard-own-fashion-mnist-alpha0.5", "LG-FedAvg", "RefProtoFL"),
        *({"method": "lg-fedavg", **TWENTY}, {**OURS, **TWENTY, "refprotofl.value-type": "float32"}),
    ),
    (
        *("ablation", "ablation-standard-cifar10-alpha0.5", "RefProtoFL w/o ERPA", "RefProtoFL"),
        *({**OURS, **TWENTY, "refprotofl.erpa": False}, {**OURS, **TWENTY}),
    ),
    (
        *("thin", "thin-global-fashion-mnist-alpha0.5", "FedAvg + public images", "thin"),
        *({**FULL, **PUBLIC}, {**THIN, **TUNED}),
    ),
    (
        *("thin", "thin-own-cifar10-alpha100", "FedPAC + public images", "thin"),
        *({"method": "fedpac", **PUBLIC}, {**THIN, **TUNED}),
    ),
    (
        *("thin-ablation", "thin-ablation-own-fashion-mnist-alpha0.5", "thin, no fine-tuning", "thin"),
        *({**THIN, "finetune.epochs": None}, {**THIN, **TUNED}),
    ),
    (
        *("resnet18", "thin-global-fashion-mnist-alpha0.5", "FedAvg + public images", "thin"),
        *({**FULL, **PUBLIC}, {"method": "thin"}),
    ),
]


def read_lines() -> list[dict[str, Any]]:
    return [json.loads(line) for file in RESULTS.glob("*/cells.jsonl") for line in file.read_text().splitlines()]


def value_of(experiment: dict[str, Any], key: str) -> Any:
    """None where a key is at its default and was not in the experiment when the run was made."""
    found: Any = experiment
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def runs_of(lines: list[dict[str, Any]], wanted: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Their summaries by seed."""
    summaries = [line["summary"] for line in lines]
    found = [
        one for one in summaries if all(value_of(one["experiment"], key) == value for key, value in wanted.items())
    ]
    by_seed = {one["experiment"]["seed"]: one for one in found}
    assert len(by_seed) == len(found), f"{len(found)} runs of {len(by_seed)} seeds"
    return by_seed


def half_width(values: list[float]) -> float:
    low, high = stats.t.interval(0.95, len(values) - 1, loc=fmean(values), scale=stats.sem(values))
    return float(high - low) / 2


def holm(chances: dict[str, float]) -> dict[str, float]:
    """Holm's step-down correction, written out."""
    corrected, least = {}, 0.0
    for rank, (name, p) in enumerate(sorted(chances.items(), key=lambda one: one[1])):
        least = max(least, min(1.0, (len(chances) - rank) * p))
        corrected[name] = least
    return corrected


def seeds_of(row: dict[str, Any]) -> list[float]:
    return [row[key] for key in sorted(key for key in row if key.startswith("seed_"))]


@pytest.mark.parametrize(
    ("study", "name", "label", "base", "wanted", "wanted_base"),
    CELLS,
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_cells_of_the_tables_are_what_scipy_computes(
    study: str, name: str, label: str, base: str, wanted: dict[str, Any], wanted_base: dict[str, Any]
) -> None:
    table = json.loads((RESULTS / study / "tables" / f"{name}.json").read_text())
    rows = {row["method"]: row for row in table["rows"]}
    row, protocol = rows[label], table["protocol"]
    assert row["against"] == base
    large = study == "resnet18"
    block = {
        **{"dataset": table["dataset"], "alpha": table["alpha"], "model.name": "resnet18" if large else "cnn"},
        "train-limit": 3000 if large else 10_000,
    }
    lines = read_lines()
    runs, others = (runs_of(lines, {**block, **one}) for one in (wanted, wanted_base))
    assert {*table["seeds"]} <= runs.keys() & others.keys()
    values, against = ([one[seed]["accuracy"][protocol] for seed in table["seeds"]] for one in (runs, others))
    assert (row["mean"], row["half_width"]) == pytest.approx((fmean(values), half_width(values)))
    differences = [one - other for one, other in zip(values, against, strict=True)]
    tested = stats.ttest_rel(values, against)
    interval = tested.confidence_interval(0.95)
    assert row["difference"] == pytest.approx(fmean(differences))
    assert row["difference_half_width"] == pytest.approx((interval.high - interval.low) / 2)
    assert row["p"] == pytest.approx(tested.pvalue)
    compared = {one: found for one, found in rows.items() if one != base and found.get("p") is not None}
    chances = {one: stats.ttest_rel(seeds_of(found), seeds_of(rows[base])).pvalue for one, found in compared.items()}
    assert row["p_holm"] == pytest.approx(holm(chances)[label])
    sent = [runs[seed]["communication"] for seed in table["seeds"]]
    ways = ("uplink", "downlink", "one_off")
    assert row["total_bytes"] == pytest.approx(fmean(sum(one[way]["payload_bytes"] for way in ways) for one in sent))
    text = (RESULTS / study / "tables" / f"{name}.md").read_text()
    assert f"{100 * fmean(values):.2f} % ± {100 * half_width(values):.2f}" in text


def test_every_difference_of_a_table_of_all_pairs_is_what_scipy_computes() -> None:
    """Corrected over the whole table, in which each unordered pair is one test."""
    folder = RESULTS / "thin" / "tables"
    rows = {row["method"]: row for row in json.loads((folder / "thin-own-cifar10-alpha0.5.json").read_text())["rows"]}
    pairs = json.loads((folder / "thin-own-cifar10-alpha0.5-differences.json").read_text())["rows"]
    assert len(pairs) == len(rows) * (len(rows) - 1)
    unordered = list(itertools.combinations(rows, 2))
    tests = {pair: stats.ttest_rel(*(seeds_of(rows[one]) for one in pair)) for pair in unordered}
    corrected = holm({" - ".join(pair): tested.pvalue for pair, tested in tests.items()})
    for found in pairs:
        one, other = found["method"], found["against"]
        pair, sign = ((one, other), 1) if (one, other) in tests else ((other, one), -1)
        interval = tests[pair].confidence_interval(0.95)
        assert found["difference"] == pytest.approx(sign * (interval.high + interval.low) / 2)
        assert found["difference_half_width"] == pytest.approx((interval.high - interval.low) / 2)
        assert found["p"] == pytest.approx(tests[pair].pvalue)
        assert found["p_holm"] == pytest.approx(corrected[" - ".join(pair)])


@pytest.mark.parametrize(
    ("dataset", "alpha", "said"),
    [
        ("fashion-mnist", "0.5", "worse"),  # -1.17 ± 0.14
        ("fashion-mnist", "100", "not worse by more than the margin"),  # -0.74 ± 0.07
        ("cifar10", "0.5", "worse"),  # -1.93 ± 1.51
        ("cifar10", "100", "worse"),  # -2.13 ± 1.16
        ("mnist", "0.5", "worse"),  # -0.77 ± 0.57
        ("mnist", "100", "not worse by more than the margin"),  # -0.54 ± 0.21
    ],
)
def test_thin_is_within_a_point_of_fedavg_with_public_images_where_scipy_says_so(
    dataset: str, alpha: str, said: str
) -> None:
    table = json.loads((RESULTS / "thin" / "tables" / f"thin-global-{dataset}-alpha{alpha}.json").read_text())
    rows = {row["method"]: row for row in table["rows"]}
    rival = rows["FedAvg + public images"]
    interval = stats.ttest_rel(seeds_of(rows["thin"]), seeds_of(rival)).confidence_interval(0.95)
    within, worse = interval.low > -0.01, interval.high < 0
    assert rival["baseline_verdict"] == said
    assert (within, worse) == (said == "not worse by more than the margin", True)
