"""Console output: outside text is never markup, a closed pipe is no error, and any encoding works.

Tables fit the terminal: text wraps, and columns that do not fit continue in a table below. Nothing is cut.
"""

import codecs
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Any

from rich.box import HEAVY_HEAD
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from refprotofl.core import for_terminal, lines_for_terminal, spell_out

codecs.register_error("spell-out", spell_out)


class PlainConsole(Console):
    """A console that prints text literally, with control characters escaped."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        # NO_COLOR turns off all styles, bold and dim as well.
        system = None if os.environ.get("NO_COLOR") else "auto"
        super().__init__(
            stderr=stderr, markup=False, emoji=False, highlight=False, **({"color_system": system} | options)
        )

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(lines_for_terminal(text), **options)

    def on_broken_pipe(self) -> None:
        """Stop printing, but let the command continue: its other results are still wanted."""
        self.quiet = True
        _discard(self.file)


out = PlainConsole()
notes = PlainConsole(stderr=True)


def say(sentence: str, console: Console = out) -> None:
    """Print a line that the terminal wraps, so that it can be copied and searched."""
    console.print(Text(lines_for_terminal(sentence)), soft_wrap=True)


def explain(paragraph: str, console: Console = out) -> None:
    """Print prose, wrapped between words."""
    console.print(Text(lines_for_terminal(paragraph)))


def complain(sentence: str) -> None:
    notes.print(Text("error: ", style="bold red"), end="")
    say(sentence, notes)


def warn(sentence: str, console: Console = notes) -> None:
    console.print(Text("warning: ", style="yellow"), end="")
    say(sentence, console)


def emit(text: str) -> None:
    """Write text for another program, unchanged."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)


def as_encoded(text: str, console: Console) -> str:
    """Return the text as it is printed: characters missing from the terminal's encoding are escaped, and wider."""
    return text.encode(console.encoding, "spell-out").decode(console.encoding)


def take_any_character() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="spell-out")


def flush() -> None:
    """Flush both streams, so that Python does not report a closed pipe at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _discard(stream)


def _discard(stream: Any) -> None:
    """Redirect further output to a closed pipe to the null device."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


FRAME = 3  # width of a column's frame and padding


@dataclass(frozen=True)
class Column:
    heading: str
    numbers: bool = False  # aligned to the right
    wraps: int = 0  # the least width to which its cells are wrapped; 0 means never

    def width(self, cells: Sequence[str]) -> int:
        """Return its width without wrapping."""
        return max(map(cell_len, (*self.heading.split("\n"), *cells)), default=0)

    def least(self, cells: Sequence[str]) -> int:
        full = self.width(cells)
        return min(full, self.wraps) if self.wraps else full


Line = Sequence[object]  # the cells of one row
Part = list[tuple[Column, Sequence[str]]]  # one table: columns with their cells


def show(
    columns: Sequence[Column],
    rows: Sequence[Line],
    title: str = "",
    *,
    framed: bool = True,
    console: Console = out,
) -> None:
    """Print a table. Where it is continued in another table, the first column is repeated."""
    shown = [[as_encoded(for_terminal(cell), console) for cell in row] for row in rows]
    for number, part in enumerate(_parts(columns, shown, console.width - 1)):
        console.print(_table(part, for_terminal(title) if number == 0 else "", framed, console.width - 1))


def _parts(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[Part]:
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    whole: Part = list(zip(columns, cells, strict=True))
    if sum(column.width(own) + FRAME for column, own in whole) <= room:
        return [whole]
    first, *others = [(_narrowed(column, own), own) for column, own in whole]
    parts: list[Part] = [[first]]
    for other in others:
        if sum(column.least(own) + FRAME for column, own in (*parts[-1], other)) > room and len(parts[-1]) > 1:
            parts.append([first])
        parts[-1].append(other)
    return parts


def _narrowed(column: Column, cells: Sequence[str]) -> Column:
    """Return the column with its heading wrapped to the width of its numbers."""
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
    fits = sum(column.least(cells) + FRAME for column, cells in part) <= room
    for column, _ in part:
        justify: JustifyMethod = "right" if column.numbers else "left"
        table.add_column(Text(column.heading), justify=justify, no_wrap=fits and not column.wraps, overflow="fold")
    for row in zip(*(cells for _, cells in part), strict=True):
        table.add_row(*map(Text, row))
    return table
