"""The numbers of docs/claims.md are those of the published tables, which other tests compute again from the runs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "results"
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
Record = dict[str, Any]

VERDICTS = {
    "better": "better",
    "worse": "worse",
    "undecided": "undecided",
    "not worse by more than the margin": "not worse",
}
ALPHA_HALF = "fashion-mnist-alpha0.5", "cifar10-alpha0.5"
STC, PUBLIC = "FedAvg + public images, STC 5 %", "FedAvg + public images"


def table(study: str, name: str) -> dict[str, Record]:
    found = json.loads((TABLES / study / "tables" / f"{name}.json").read_text(encoding="utf-8"))
    return {row["method"]: row for row in found["rows"]}


def page_row(section: str, first: str) -> list[str]:
    """Return the cells of a row of a section's tables, without bold."""
    text = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (own,) = (part for part in text if part.startswith(section + "\n"))
    rows = [[cell.strip().replace("**", "") for cell in line.strip("|").split("|")] for line in own.splitlines()]
    (found,) = (cells for cells in rows if cells[0] == first)
    return found


def points(record: Record) -> str:
    """Return the baseline minus the row, in points."""
    return f"{-100 * record['difference']:+.2f} ± {100 * record['difference_half_width']:.2f}"


def holm(record: Record) -> str:
    p = record["p_holm"]
    return "1" if round(p, 2) == 1 else f"{p:.3f}" if round(p, 3) < 0.1 else f"{p:.2f}"


def family(rows: dict[str, Record]) -> int:
    return sum(row.get("p_holm") is not None for row in rows.values())


def claimed(rows: dict[str, Record], method: str) -> list[str]:
    """Return difference, verdict and p-value with the size of its family, as the page has them."""
    row = rows[method]
    return [points(row), VERDICTS[row["baseline_verdict"]], f"{holm(row)} ({family(rows)})"]


def megabytes(record: Record) -> str:
    up, down, once = (record[f"{name}_bytes"] / 1e6 for name in ("uplink", "downlink", "one_off"))
    return f"{up:.2f} + {down:.2f} + {f'{once:.2f}' if once >= 0.005 else '0'}"


def share(one: float, other: float) -> str:
    ratio = other / one
    return f"1/{ratio:.1f}" if ratio >= 5 else f"1/{ratio:.2f}"


@pytest.mark.parametrize(
    ("first", "study", "name", "method"),
    [
        ("STC 5 % + public, Fashion-MNIST", "thin", "thin-global-fashion-mnist-alpha0.5", STC),
        ("STC 5 % + public, CIFAR-10", "thin", "thin-global-cifar10-alpha0.5", STC),
        ("FedAvg 6x3, Fashion-MNIST", "thin", "thin-global-fashion-mnist-alpha0.5", "FedAvg, 6 rounds of 3 epochs"),
        ("FedAvg 6x3, CIFAR-10", "thin", "thin-global-cifar10-alpha0.5", "FedAvg, 6 rounds of 3 epochs"),
        ("FedAvg 20x1, Fashion-MNIST", "thin", "thin-global-fashion-mnist-alpha0.5", "FedAvg"),
        ("FedAvg 20x1, CIFAR-10", "thin", "thin-global-cifar10-alpha0.5", "FedAvg"),
    ],
)
def test_bytes_of_thin(first: str, study: str, name: str, method: str) -> None:
    rows = table(study, name)
    thin, row = rows["thin"], rows[method]
    sent = [one["uplink_bytes"] + one["downlink_bytes"] for one in (thin, row)]
    assert page_row("thin: bytes", first) == [
        *(first, *claimed(rows, method), megabytes(row)),
        *(share(thin["total_bytes"], row["total_bytes"]), share(*sent)),
    ]


@pytest.mark.parametrize(
    ("first", "study", "name", "own"),
    [
        ("Fashion-MNIST, 0.5", "thin", "fashion-mnist-alpha0.5", "FedPAC + public images"),
        ("Fashion-MNIST, 100", "thin", "fashion-mnist-alpha100", "FedPAC + public images"),
        ("CIFAR-10, 0.5", "thin", "cifar10-alpha0.5", "FedPAC + public images"),
        ("CIFAR-10, 100", "thin", "cifar10-alpha100", "FedPAC + public images"),
        ("MNIST, 0.5", "thin", "mnist-alpha0.5", "FedPAC + public images"),
        ("MNIST, 100", "thin", "mnist-alpha100", "FedPAC + public images"),
        ("ResNet-18, Fashion-MNIST, 0.5", "resnet18", "fashion-mnist-alpha0.5", "FedPAC + public images"),
    ],
)
def test_accuracy_of_thin(first: str, study: str, name: str, own: str) -> None:
    by_global, by_own = (table(study, f"thin-{protocol}-{name}") for protocol in ("global", "own"))
    assert page_row("thin: accuracy", first) == [first, *claimed(by_global, PUBLIC), *claimed(by_own, own)]


@pytest.mark.parametrize(
    "method", [PUBLIC, *(f"{name} + public images" for name in ("FedPer", "FedPAC", "FedRep", "local"))]
)
def test_thin_on_the_whole_test_set(method: str) -> None:
    first = method.replace("public images", "public").replace("local", "`local`")
    found = [table("thin", f"thin-personal-{name}")[method] for name in ALPHA_HALF]
    (verdict,) = {VERDICTS[row["baseline_verdict"]] for row in found}
    assert page_row("thin: accuracy", first) == [first, *map(points, found), f"{verdict}, both"]


@pytest.mark.parametrize(
    ("first", "method"),
    [
        ("`local`", "local training"),
        ("LG-FedAvg", "LG-FedAvg"),
        ("FedAvg, whole model", "FedAvg"),
        ("`local` + public", "local training + public images"),
    ],
)
def test_refprotofl(first: str, method: str) -> None:
    expected = []
    for name in ("fashion-mnist", "mnist", "cifar10", "cifar100"):
        rows = table("accuracy", f"accuracy-standard-{name}-alpha0.5")
        assert family(rows) == 13
        row = rows[method]
        expected.append(f"{points(row)}, {VERDICTS[row['baseline_verdict']]} ({holm(row)})")
    assert page_row("RefProtoFL", first) == [first, *expected]


def test_bytes_of_refprotofl() -> None:
    rows = table("accuracy", "accuracy-standard-fashion-mnist-alpha0.5")
    sent = {name: megabytes(rows[name]) for name in ("RefProtoFL", "LG-FedAvg", "FedAvg")}
    assert f"up + down + once: {', '.join(f'{name} {bytes}' for name, bytes in sent.items())}." in PAGE


@pytest.mark.parametrize(("first", "method"), [("APUD", "RefProtoFL w/o APUD"), ("ERPA", "RefProtoFL w/o ERPA")])
def test_ablation(first: str, method: str) -> None:
    expected = []
    for name in ALPHA_HALF:
        for study in ("ablation-standard", "ablation-standard-own"):
            rows = table(study.replace("-standard", ""), f"{study}-{name}")
            assert family(rows) == 7
            row = rows[method]
            expected.append(f"{points(row)}, {VERDICTS[row['baseline_verdict']]} ({holm(row)})")
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {first}"))
    assert [cell.strip() for cell in line.strip("|").split("|")][1:] == expected
