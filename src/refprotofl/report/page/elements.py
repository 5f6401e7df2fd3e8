"""What a page is made of, as plain data: figures with their numbers, tables, facts, in sections."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from refprotofl.core.escaping import for_terminal
from refprotofl.core.units import counted, size
from refprotofl.experiment import Experiment

Form = Literal["text", "whole", "share", "bytes", "seconds", "number"]
Kind = Literal["lines", "bars", "stacked", "heat", "bubbles", "dots", "frontier"]
Cell = str | float | int | None

LONGEST = 300  # characters of a text that is shown
MOST_ROWS = 12_000  # of one figure


@dataclass(frozen=True)
class Column:
    name: str  # ours, as in a Vega field
    title: str
    form: Form = "number"


@dataclass(frozen=True)
class Figure:
    """A chart and, behind it, its numbers: `rows` in the order of `columns`, of which the channels name some."""

    name: str
    title: str
    caption: str
    kind: Kind
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Cell]]
    x: str
    y: str
    colour: str | None = None  # a series for a text, a shade for a number
    band: tuple[str, str] | None = None  # columns of the lower and upper end
    size: str | None = None
    label: str | None = None
    log: bool = False  # of the x axis
    zero: bool = False  # whether the y axis begins at 0
    across: tuple[str, ...] = ()  # the names along an axis of names, in their order
    upwards: tuple[str, ...] = ()
    series: tuple[str, ...] = ()  # all that the page has, so that each has one colour in all its figures

    def column(self, name: str) -> Column:
        return next(one for one in self.columns if one.name == name)

    def values(self, name: str) -> list[Any]:
        place = [one.name for one in self.columns].index(name)
        return [row[place] for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip((one.name for one in self.columns), row, strict=True)) for row in self.rows]


@dataclass(frozen=True)
class Table:
    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    left: int = 1  # columns of words; the others are numbers


@dataclass(frozen=True)
class Facts:
    """Names with their values."""

    title: str
    pairs: Mapping[str, object]
    folded: bool = False


Part = Figure | Table | Facts


@dataclass(frozen=True)
class Tile:
    """A number to be read first."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    parts: Sequence[Part]
    short: str | None = None  # in the list of sections, where it is not the title; nothing: it is not listed


@dataclass(frozen=True)
class Page:
    title: str
    subtitle: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    notes: Sequence[str] = ()  # what the page lacks, and why
    progress: Mapping[str, Any] | None = None  # of a run that is watched

    @property
    def figures(self) -> list[Figure]:
        return [part for section in self.sections for part in section.parts if isinstance(part, Figure)]


def shown(value: object) -> Cell:
    """A cell as it may be shown: text without controls and not too long, numbers that are numbers."""
    if value is None or isinstance(value, bool):
        return None if value is None else ("yes" if value else "no")
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    text = for_terminal(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def words(value: object) -> str:
    return str(shown(value))


def number_text(value: Cell, form: Form) -> str:
    """A number as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if form == "share":
        return f"{100 * value:.2f} %"
    if form == "bytes":
        return size(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def title(experiment: Experiment, *, mailed: bool = False) -> str:
    """`mailed`: without where the data lie, which is nobody's business."""
    spread = f"Dirichlet {experiment.alpha:g}" if experiment.partition == "dirichlet" else experiment.partition
    clients, rounds = counted(experiment.clients, "client"), counted(experiment.rounds, "round")
    dataset = without_place(experiment.dataset) if mailed else experiment.dataset
    what = for_terminal(f"{experiment.method} on {dataset}")
    return f"{what}: {clients}, {spread}, {rounds}, seed {experiment.seed}"


def without_place(dataset: str) -> str:
    """Of a path its last part."""
    return dataset if dataset.startswith("hf:") else Path(dataset).name
