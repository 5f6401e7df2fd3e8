"""A comparison as text for people, papers, spreadsheets and programs."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from refprotofl.basics.escapes import for_csv, for_latex, for_markdown
from refprotofl.basics.units import percent, size
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.report.comparison import OverSeeds
from refprotofl.report.statistics import Estimate

Cells = tuple[list[str], list[list[str]]]  # headings, and for each method what stands under them

BYTES = {"uplink": "uplink", "downlink": "downlink", "one_off": "one-off", "total": "total"}


def accuracies(rows: Sequence[OverSeeds]) -> Cells:
    """What each method shares, and how good it is by each protocol."""
    protocols = _protocols(rows)
    shown = [[row.share, *(with_interval(row.accuracy.get(protocol)) for protocol in protocols)] for row in rows]
    return ["shares", *protocols], shown


def efforts(rows: Sequence[OverSeeds]) -> Cells:
    """What each method took: bytes, passes over the data, time."""
    headings = [*BYTES.values(), "local epochs", "steps", "seconds"]
    return headings, [
        [
            *(size(row.bytes[key]) for key in BYTES),
            f"{row.local_epochs:,.0f}",
            "-" if row.steps is None else f"{row.steps:,.0f}",
            f"{row.seconds:,.1f}",
        ]
        for row in rows
    ]


def _all_cells(rows: Sequence[OverSeeds]) -> Cells:
    (good, good_cells), (took, took_cells) = accuracies(rows), efforts(rows)
    lines = zip(rows, good_cells, took_cells, strict=True)
    return ["method", *good, *took], [[row.name, *left, *right] for row, left, right in lines]


def with_interval(value: Estimate | None) -> str:
    if value is None:
        return "-"
    spread = "" if value.half_width is None else f" ± {100 * value.half_width:.2f}"
    return f"{percent(value.mean)}{spread}"


def footnotes(rows: Sequence[OverSeeds]) -> list[str]:
    """What the methods tell of themselves, and where they depart from what their authors published."""
    return [line for row in rows for line in (*_facts(row), *(f"{row.name}: {note}" for note in row.notes))]


def _facts(row: OverSeeds) -> list[str]:
    told = "; ".join(f"{fact.replace('_', ' ')} {_told(values)}" for fact, values in row.facts.items())
    return [f"{row.name}: {told}"] if told else []


def _told(values: dict[int, Any]) -> str:
    """Once if all seeds agree, else seed by seed."""
    shown = {seed: f"{value:.4g}" if isinstance(value, float) else str(value) for seed, value in values.items()}
    if len(set(shown.values())) == 1:
        return next(iter(shown.values()))
    return ", ".join(f"{value} (seed {seed})" for seed, value in shown.items())


def as_json(rows: Sequence[OverSeeds], title: str = "") -> str:
    return json.dumps([_plain(row) for row in rows], indent=2) + "\n"


def _plain(row: OverSeeds) -> dict[str, Any]:
    accuracy = {
        protocol: {"mean": found.mean, "half_width": found.half_width, "values": row.values[protocol]}
        for protocol, found in row.accuracy.items()
    }
    return {
        "name": row.name,
        "share": row.share,
        "accuracy": accuracy,
        "bytes": row.bytes,
        "against": None,
        "local_epochs": row.local_epochs,
        "steps": row.steps,
        "seconds": row.seconds,
        "facts": row.facts,
        "notes": list(row.notes),
        "runs": list(row.runs),
    }


def as_csv(rows: Sequence[OverSeeds], title: str = "") -> str:
    """Plain numbers, shares of 1 and bytes."""
    protocols = _protocols(rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    spreads = [name for protocol in protocols for name in (protocol, f"{protocol}_half_width")]
    took = [*(f"{key}_bytes" for key in BYTES), "local_epochs", "steps", "seconds"]
    writer.writerow(["method", "share", "seeds", *spreads, *took, "notes"])
    for row in rows:
        found = [row.accuracy.get(protocol) for protocol in protocols]
        pairs = [value for one in found for value in ((one.mean, one.half_width) if one else (None, None))]
        numbers = [*pairs, *(row.bytes[key] for key in BYTES), row.local_epochs, row.steps, row.seconds]
        line = [row.name, row.share, len(row.runs), *numbers, "; ".join(footnotes([row]))]
        writer.writerow([for_csv(cell) for cell in line])
    return text.getvalue()


def as_markdown(rows: Sequence[OverSeeds], title: str) -> str:
    headings, lines = _all_cells(rows)
    rule = ["---", "---", *["--:"] * (len(headings) - 2)]
    table = [headings, rule, *([for_markdown(cell) for cell in line] for line in lines)]
    beneath = [f"- {for_markdown(note)}" for note in footnotes(rows)]
    text = [for_markdown(title), "", *(f"| {' | '.join(line)} |" for line in table), "", *beneath]
    return "\n".join(text).rstrip("\n") + "\n"


def as_latex(rows: Sequence[OverSeeds], title: str) -> str:
    """A table for the package booktabs."""
    headings, lines = _all_cells(rows)
    shown = [" & ".join(map(for_latex, line)) + r" \\" for line in (headings, *lines)]
    beneath = [rf"\par\footnotesize {for_latex(note)}" for note in footnotes(rows)]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{for_latex(title)}}}",
            rf"\begin{{tabular}}{{ll{'r' * (len(headings) - 2)}}}",
            r"\toprule",
            shown[0],
            r"\midrule",
            *shown[1:],
            r"\bottomrule",
            r"\end{tabular}",
            *beneath,
            r"\end{table}",
            "",
        ]
    )


FORMATS: dict[str, Callable[[Sequence[OverSeeds], str], str]] = {
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
    "json": as_json,
}


def _protocols(rows: Sequence[OverSeeds]) -> list[str]:
    return [protocol for protocol in PROTOCOLS if any(protocol in row.accuracy for row in rows)]
