"""CSV and TSV files, read in blocks of rows, so that memory does not grow with the file."""

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError

SUFFIXES = (".csv", ".tsv")
DELIMITERS = ",;\t|"
BLOCK = 8192  # rows
LONGEST_FIELD = 1 << 24  # characters
SHOWN_AFTER = 1.0  # seconds until the progress is shown

Column = Sequence[str | None] | NDArray[np.float64]  # text, or numbers with NaN for missing ones


@dataclass(frozen=True)
class Block:
    """Some rows of a table, column by column."""

    start: int  # number of the first row, from 1
    columns: Sequence[Column]
    lines: Sequence[int] = ()  # of a text file: the line that each row ends on

    def __len__(self) -> int:
        return len(self.columns[0])

    def place(self, position: int) -> str:
        """Return where a row of this block is, for errors."""
        return f"row {self.start + position}" + (f" (line {self.lines[position]})" if self.lines else "")


@dataclass(frozen=True)
class TableFile:
    """An open table: the names of its columns, its blocks, and its expected number of rows."""

    names: tuple[str, ...]
    blocks: Iterator[Block]
    expected_rows: int


@contextmanager
def open_delimited(path: Path, named: Sequence[str] = ()) -> Iterator[TableFile]:
    """Open a CSV or TSV file. `named` are the columns that the experiment names.

    Without a header line the columns are called 1, 2, 3, …
    """
    try:
        with path.open("rb") as stream:
            if stream.read(2) in (b"\xff\xfe", b"\xfe\xff"):
                raise DataError(f"{path} is UTF-16 text: save it as UTF-8.")
            stream.seek(0)
            with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
                yield _opened(path, stream, text, named)
    except OSError as problem:
        raise DataError(f"{path} cannot be read: {problem.strerror or problem}.") from None
    except UnicodeDecodeError as problem:
        raise DataError(f"{path} is not UTF-8 text ({problem.reason}): save it as UTF-8.") from None


def _opened(path: Path, stream: IO[bytes], text: io.TextIOWrapper, named: Sequence[str]) -> TableFile:
    rows = _rows(path, text)
    first_line, first = next(rows, (0, []))
    if not first:
        raise DataError(f"{path} is empty.")
    headed = _is_header(first, named)
    names = tuple(field.strip() for field in first) if headed else tuple(str(n + 1) for n in range(len(first)))
    _check_names(path, names)
    kept = rows if headed else _chained((first_line, first), rows)
    total = path.stat().st_size
    return TableFile(names, _blocks(path, kept, len(names), stream, total), _expected(path, stream, total))


def _rows(path: Path, text: io.TextIOWrapper) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the fields of every row that is not empty."""
    csv.field_size_limit(LONGEST_FIELD)
    start = text.read(1 << 16)
    text.seek(0)
    tabs = path.suffix.lower() == ".tsv"
    # Tab-separated files have no quoting: a quotation mark belongs to the text.
    reader = csv.reader(
        text, delimiter="\t" if tabs else _delimiter(start), quoting=csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL
    )
    try:
        for row in reader:
            if row and not (len(row) == 1 and not row[0].strip()):
                yield reader.line_num, row
    except csv.Error as problem:
        raise DataError(f"{path}, line {reader.line_num}: not a table of fields ({problem}).") from None


def _delimiter(start: str) -> str:
    """Return the delimiter that occurs most often in the first line, outside of quotation marks."""
    line = next((line for line in start.splitlines() if line.strip()), "")
    bare = "".join(line.split('"')[::2])
    return max(DELIMITERS, key=bare.count)


def _is_header(first: Sequence[str], named: Sequence[str]) -> bool:
    """Return True if the first line names columns: it has a named one, or no number where none is named."""
    fields = [field.strip() for field in first]
    if named and any(name in fields for name in named):
        return True
    if named:
        return not all(name.isdecimal() and 1 <= int(name) <= len(fields) for name in named)
    return not any(_is_number(field) for field in fields)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _check_names(path: Path, names: Sequence[str]) -> None:
    for number, name in enumerate(names, 1):
        if not name:
            raise DataError(
                f"{path}: column {number} has no name. Name it in the first line, or remove the column; pandas writes "
                "none with to_csv(index=False)."
            )
        if name in names[: number - 1]:
            raise DataError(f"{path}: two columns are called {name!r}; rename one in the first line.")


def _chained(first: tuple[int, list[str]], rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    yield first
    yield from rows


def _blocks(
    path: Path, rows: Iterator[tuple[int, list[str]]], width: int, stream: IO[bytes], total: int
) -> Iterator[Block]:
    """Yield the rows in blocks of columns, with a progress bar over the bytes of a large file."""
    from tqdm import tqdm

    start = 1
    lines: list[int] = []
    fields: list[list[str]] = []
    with tqdm(
        total=total, desc=path.name, unit="B", unit_scale=True, disable=None, leave=False, delay=SHOWN_AFTER
    ) as bar:
        for line, row in rows:
            if len(row) != width:
                raise DataError(
                    f"{path}, row {start + len(fields)} (line {line}) has {len(row)} fields, the first line {width}: "
                    "add or remove fields, or quote those with a delimiter in them."
                )
            lines.append(line)
            fields.append(row)
            if len(fields) == BLOCK:
                yield Block(start, list(zip(*fields, strict=True)), lines)
                start += len(fields)
                lines, fields = [], []
                bar.update(stream.tell() - bar.n)
        if fields:
            yield Block(start, list(zip(*fields, strict=True)), lines)


def _expected(path: Path, stream: IO[bytes], total: int) -> int:
    """Return about how many rows the file has, by the length of its first lines."""
    with path.open("rb") as copy:
        start = copy.read(1 << 20)
    lines = start.count(b"\n")
    return max(1, lines + 1) if len(start) == total else int(1.02 * total * max(1, lines) / len(start)) + 1
