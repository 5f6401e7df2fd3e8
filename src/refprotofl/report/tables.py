"""Tables, and their formats: Markdown, LaTeX, CSV and JSON."""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refprotofl.core import for_csv, for_latex, for_markdown
from refprotofl.records import make_folders, write_whole
from refprotofl.report.statistics import Standing

_IN_MARKDOWN: dict[Standing, str] = {"best": "**{}**", "within noise": "{} †", "behind": "{}"}
_IN_LATEX: dict[Standing, str] = {"best": r"\textbf{{{}}}", "within noise": r"{}\textdagger{{}}", "behind": "{}"}


@dataclass(frozen=True)
class Entry:
    """A cell of a table."""

    text: str
    standing: Standing = "behind"  # the best is bold; those within noise of it are marked


@dataclass(frozen=True)
class Table:
    """A table; its first `left` columns are words, the others numbers."""

    name: str  # of its files
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    records: tuple[dict[str, Any], ...] = ()  # the same as plain numbers, one record per line
    notes: tuple[str, ...] = ()
    left: int = 1
    narrow: bool = False  # in LaTeX: set for one column of a paper
    about: dict[str, Any] = field(default_factory=dict)  # the origin of the numbers, for JSON


def as_markdown(table: Table) -> str:
    rule = ["---"] * table.left + ["--:"] * (len(table.headings) - table.left)
    rows = [[_IN_MARKDOWN[entry.standing].format(for_markdown(entry.text)) for entry in row] for row in table.rows]
    lines = [f"| {' | '.join(line)} |" for line in (list(map(for_markdown, table.headings)), rule, *rows)]
    beneath = [f"- {for_markdown(note)}" for note in table.notes]
    return "\n".join([for_markdown(table.title), "", *lines, "", *beneath]).rstrip("\n") + "\n"


def as_latex(table: Table) -> str:
    """Return LaTeX for the package booktabs."""
    rows = [[_IN_LATEX[entry.standing].format(_signed(for_latex(entry.text))) for entry in row] for row in table.rows]
    shown = [" & ".join(line) + r" \\" for line in (map(for_latex, table.headings), *rows)]
    beneath = [rf"\par\footnotesize {for_latex(note)}" for note in table.notes]
    columns = "l" * table.left + "r" * (len(table.headings) - table.left)
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{for_latex(table.title)}}}",
            *([r"\centering\small\setlength{\tabcolsep}{3pt}"] if table.narrow else []),
            rf"\begin{{tabular}}{{{columns}}}",
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


def _signed(cell: str) -> str:
    """Replace the hyphen of a negative number by a minus sign."""
    return re.sub(r"^-(?=\d)", "$-$", cell)


def as_csv(table: Table) -> str:
    return csv_of(table.records)


def csv_of(records: Sequence[Mapping[str, object]]) -> str:
    """Return CSV with a line per record, and a column for each name in any of them."""
    headings = list(dict.fromkeys(name for record in records for name in record))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    for record in records:
        writer.writerow([for_csv(record.get(name)) for name in headings])
    return text.getvalue()


def as_json(table: Table) -> str:
    plain = {"title": table.title, **table.about, "rows": list(table.records), "notes": list(table.notes)}
    return json.dumps(plain, indent=2) + "\n"


WRITERS: dict[str, Callable[[Table], str]] = {"md": as_markdown, "tex": as_latex, "csv": as_csv, "json": as_json}


def write_table(folder: Path, table: Table) -> list[Path]:
    """Write the table in all formats; return the paths."""
    make_folders(folder)
    paths = {suffix: folder / f"{table.name}.{suffix}" for suffix in WRITERS}
    for suffix, path in paths.items():
        write_whole(path, WRITERS[suffix](table).encode())
    return list(paths.values())
