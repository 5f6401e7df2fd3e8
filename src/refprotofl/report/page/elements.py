"""The elements of a report page as plain data: figures with their numbers, tables, facts, in sections."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from refprotofl.core import counted, for_terminal, size
from refprotofl.experiment import Experiment

Form = Literal["text", "whole", "share", "bytes", "seconds", "number"]
Kind = Literal["lines", "bars", "stacked", "heat", "bubbles", "dots", "frontier"]
Cell = str | float | int | None

LONGEST = 300  # characters of a text that is shown
MOST_ROWS = 12_000  # of one figure


@dataclass(frozen=True)
class Column:
    name: str  # the Vega field
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
    zero: bool = False  # the y axis begins at 0
    across: tuple[str, ...] = ()  # the names along an axis of names, in their order
    upwards: tuple[str, ...] = ()
    levels: tuple[tuple[str, float], ...] = ()  # names and y values that have no place on the x axis
    series: tuple[str, ...] = ()  # of the whole page, so that each has one colour in all figures

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
    left: int = 1  # number of text columns; the others are numbers


@dataclass(frozen=True)
class Facts:
    """Names with their values."""

    title: str
    pairs: Mapping[str, object]
    folded: bool = False


Part = Figure | Table | Facts


@dataclass(frozen=True)
class Tile:
    """A headline number."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    parts: Sequence[Part]
    short: str | None = None  # its name in the navigation, if not the title; "" leaves it out


@dataclass(frozen=True)
class Page:
    title: str
    subtitle: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    notes: Sequence[str] = ()  # on missing parts
    progress: Mapping[str, Any] | None = None  # of a run in progress

    @property
    def figures(self) -> list[Figure]:
        return [part for section in self.sections for part in section.parts if isinstance(part, Figure)]


def shown(value: object) -> Cell:
    """Return a cell that is safe to display: text without control characters and cut, only finite numbers."""
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
    """Return a number in the form of its column."""
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
    """Return the title of a run. `mailed` leaves out the path of the data set."""
    clients, rounds = counted(experiment.clients, "client"), counted(experiment.rounds, "round")
    dataset = without_place(experiment.dataset) if mailed else experiment.dataset
    what = for_terminal(f"{experiment.method} on {dataset}")
    return f"{what}: {clients}, {experiment.partition_title}, {rounds}, seed {experiment.seed}"


def without_place(dataset: str) -> str:
    """Return the name of a data set: the last part of a path."""
    return dataset if dataset.startswith("hf:") else Path(dataset).name
