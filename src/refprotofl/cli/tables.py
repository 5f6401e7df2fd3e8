"""Tables that fit the terminal: text wraps, and what is still too wide goes on in a table below. Nothing is cut."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import fill

from rich.box import HEAVY_HEAD
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from refprotofl.basics.escapes import for_terminal
from refprotofl.cli.printing import as_encoded, out

BESIDE = 3  # the frame and blanks that a column takes


@dataclass(frozen=True)
class Column:
    heading: str
    numbers: bool = False  # aligned to the right
    wraps: int = 0  # characters below which its cells are not wrapped; 0: they never are

    def width(self, cells: Sequence[str]) -> int:
        """What it takes without being wrapped."""
        return max(map(cell_len, (*self.heading.split("\n"), *cells)), default=0)

    def least(self, cells: Sequence[str]) -> int:
        full = self.width(cells)
        return min(full, self.wraps) if self.wraps else full


Line = Sequence[object]  # the cells of one row
Part = list[tuple[Column, Sequence[str]]]  # what one table shows: columns with their cells


def show(
    columns: Sequence[Column],
    rows: Sequence[Line],
    title: str = "",
    *,
    framed: bool = True,
    console: Console = out,
) -> None:
    """Prints a table; its first column names the rows, and does so again in each table that it goes on in."""
    shown = [[as_encoded(for_terminal(cell), console) for cell in row] for row in rows]
    for number, part in enumerate(_parts(columns, shown, console.width - 1)):
        console.print(_table(part, for_terminal(title) if number == 0 else "", framed, console.width - 1))


def _parts(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[Part]:
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    whole: Part = list(zip(columns, cells, strict=True))
    if sum(column.width(own) + BESIDE for column, own in whole) <= room:
        return [whole]
    first, *others = [(_narrowed(column, own), own) for column, own in whole]
    parts: list[Part] = [[first]]
    for other in others:
        if sum(column.least(own) + BESIDE for column, own in (*parts[-1], other)) > room and len(parts[-1]) > 1:
            parts.append([first])
        parts[-1].append(other)
    return parts


def _narrowed(column: Column, cells: Sequence[str]) -> Column:
    """With a heading that is hardly wider than the numbers under it."""
    if not column.numbers or not column.heading:
        return column
    width = max(map(len, (*cells, *column.heading.split())))
    return replace(column, heading=fill(column.heading, width, break_long_words=False, break_on_hyphens=False))


def _table(part: Part, title: str, framed: bool, room: int) -> Table:
    table = Table(
        title=Text(title, "italic") if title else None,
        title_justify="left",
        pad_edge=framed,
        box=HEAVY_HEAD if framed else None,
    )
    fits = sum(column.least(cells) + BESIDE for column, cells in part) <= room
    for column, _ in part:
        justify: JustifyMethod = "right" if column.numbers else "left"
        table.add_column(Text(column.heading), justify=justify, no_wrap=fits and not column.wraps, overflow="fold")
    for row in zip(*(cells for _, cells in part), strict=True):
        table.add_row(*map(Text, row))
    return table
