"""Finds the grid in which a set of indices is shortest.

The width that explains most is found from the marks of single rows and columns. Its rows (and its columns),
sorted by their marks, are then cut in two where that saves most, each part again, and once more: eight
levels. Merging neighbours gives the grids with fewer levels; the cheapest wins, if it beats having none.
No step depends on the machine (entropy.py): the same set has the same grid everywhere.
"""

from itertools import product

import numpy as np

from refprotofl.wire.bits import Integers, bit_length
from refprotofl.wire.entropy import least_bits
from refprotofl.wire.grid import Axis, Grid

DEPTH = 3  # at most 2**3 levels of rows and of columns
_WIDTHS = tuple(1 << power for power in range(5, 12))  # 32 to 2048: the usual widths of a layer's input
_HEADER_BITS = 16  # a grid's width
_MARGIN = 64  # gaps take a little more than the least bits, so a grid must save one part in so many

Lines = tuple[Integers, Integers]  # how many marks each row has, and each column


def allows_grid(size: int, width: int, total: int) -> bool:
    """Whether `total` marks in `size` may have a grid of this width; with fewer its tables cannot pay."""
    return 0 < width < size and -(-size // width) + width <= 4 * total


def fit(indices: Integers, size: int) -> tuple[Grid, Integers] | None:
    """The best grid for ascending `indices` below `size` and the marks of its cells; None if best without."""
    total = indices.size
    widths = [width for width in _WIDTHS if allows_grid(size, width, total)]
    if not widths:
        return None
    rows, columns = min(_lines_by_width(indices, size, widths), key=_line_bits)
    finest = Grid(_axis(rows, columns.size), _axis(columns, rows.size))
    marks = np.bincount(finest.cells(indices), minlength=finest.sizes.size)
    bare = int(least_bits(np.array([size]), np.array([total]))[0])
    return _cheapest(finest, marks, bare)


def _lines_by_width(indices: Integers, size: int, widths: list[int]) -> list[Lines]:
    """For each width, each twice the last: all follow from the narrowest rows and the widest columns."""
    rows = [np.bincount(indices // widths[0], minlength=-(-size // widths[0]))]
    columns = [np.bincount(indices % widths[-1], minlength=widths[-1])]
    for _ in widths[1:]:
        even = np.pad(rows[-1], (0, rows[-1].size % 2))
        rows.append(even[::2] + even[1::2])
        columns.append(columns[-1].reshape(2, -1).sum(axis=0))
    return list(zip(rows, reversed(columns), strict=True))


def _line_bits(lines: Lines) -> int:
    """A score of a width: the marks coded row by row, and column by column, and a bit for each line."""
    rows, columns = lines
    by_row = least_bits(np.array([columns.size]), rows)
    by_column = least_bits(np.array([rows.size]), columns)
    return int(by_row.sum()) + int(by_column.sum()) + rows.size + columns.size


def _axis(marks: Integers, length: int) -> Axis:
    """Levels for lines of `length` coordinates with so many `marks`, denser lines in higher levels."""
    order = np.argsort(marks, kind="stable")
    below = np.append(0, np.cumsum(marks[order]))  # marks in all lines before this one
    bounds = np.array([0, marks.size])
    for _ in range(DEPTH):
        bounds = np.sort(np.append(bounds, _cuts(below, length, bounds)))
    levels = np.empty_like(marks)
    levels[order] = np.repeat(np.arange(1 << DEPTH), np.diff(bounds))
    return Axis(levels, DEPTH)


def _cuts(below: Integers, length: int, bounds: Integers) -> list[int]:
    """Where to cut each run of sorted lines in two, so that both parts together are shortest."""
    first, last = bounds[:-1], bounds[1:]
    choices = last - first + 1  # before each line of the run, or after its last
    ends = np.cumsum(choices)
    starts = ends - choices
    cuts = np.arange(ends[-1]) + np.repeat(first - starts, choices)
    first, last = np.repeat(first, choices), np.repeat(last, choices)
    sizes = np.concatenate([cuts - first, last - cuts]) * length
    marks = np.concatenate([below[cuts] - below[first], below[last] - below[cuts]])
    lower, upper = least_bits(sizes, marks).reshape(2, -1)
    runs = zip(starts.tolist(), ends.tolist(), strict=True)
    return [int(cuts[start + np.argmin((lower + upper)[start:end])]) for start, end in runs]


def _cheapest(finest: Grid, marks: Integers, bare: int) -> tuple[Grid, Integers] | None:
    """The best of the finest grid and its coarser ones, if it is below `bare` bits."""
    depths = [pair for pair in product(range(DEPTH + 1), repeat=2) if pair != (0, 0)]
    sizes_of = [_merged(finest.sizes, *pair) for pair in depths]
    marks_of = [_merged(marks, *pair) for pair in depths]
    sizes = np.concatenate(sizes_of)
    cell_bits = least_bits(sizes, np.concatenate(marks_of)) + bit_length(np.minimum(sizes, marks.sum()))
    first_cells = np.cumsum([0] + [cells.size for cells in sizes_of[:-1]])
    rows, columns = finest.rows.levels.size, finest.columns.levels.size
    tables = np.array([rows * row_depth + columns * column_depth for row_depth, column_depth in depths])
    bits = _HEADER_BITS + tables + np.add.reduceat(cell_bits, first_cells)
    best = int(np.argmin(bits))
    if bits[best] >= bare - bare // _MARGIN:
        return None
    row_depth, column_depth = depths[best]
    return Grid(finest.rows.coarser(row_depth), finest.columns.coarser(column_depth)), marks_of[best]


def _merged(cells: Integers, row_depth: int, column_depth: int) -> Integers:
    """What the cells of the finest grid hold, summed for the cells of a coarser one."""
    shape = (1 << row_depth, 1 << (DEPTH - row_depth), 1 << column_depth, 1 << (DEPTH - column_depth))
    merged: Integers = cells.reshape(shape).sum(axis=(1, 3)).ravel()
    return merged
