"""Finds the grid in which a set of indices is shortest.

The width that explains most is found from the marks of single rows and columns. Its rows (and its columns),
sorted by their marks, are then cut in two where that saves most, each part again, and once more: eight
levels. Merging neighbours gives the grids with fewer levels; the cheapest wins, if it beats having none.
No step depends on the machine (entropy.py): the same set has the same grid everywhere.
"""

import numpy as np

from refprotofl.wire.bits import Integers, bit_length
from refprotofl.wire.entropy import least_bits
from refprotofl.wire.grid import Axis, Grid

DEPTH = 3  # at most 2**3 levels of rows and of columns
_WIDTHS = tuple(1 << power for power in range(5, 12))  # 32 to 2048: the usual widths of a layer's input
_HEADER_BITS = 16  # a grid's width
_MARGIN = 64  # gaps take a little more than the least bits, so a grid must save one part in so many
# Which finest levels each level of each coarser axis unites: depth 0 has one row here, depth 1 two, and so on.
_UNITED = np.concatenate(
    [np.kron(np.eye(1 << depth, dtype=np.int64), np.ones(1 << (DEPTH - depth), np.int64)) for depth in range(DEPTH + 1)]
)
_FIRST = (1 << np.arange(DEPTH + 1)) - 1  # the first row of each depth

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
    lines = _lines_by_width(indices, size, widths)
    rows, columns = lines[int(np.argmin(_line_bits(lines)))]
    finest = Grid(_axis(rows, columns.size), _axis(columns, rows.size))
    marks = np.bincount(finest.cells(indices), minlength=finest.sizes.size)
    bare = int(least_bits(np.array([size]), np.array([total]))[0])
    return _cheapest(finest, marks, bare)


def _lines_by_width(indices: Integers, size: int, widths: list[int]) -> list[Lines]:
    """For each width, each twice the last: all follow from the narrowest rows and the widest columns."""
    rows = [np.bincount(indices >> (widths[0].bit_length() - 1), minlength=-(-size // widths[0]))]
    columns = [np.bincount(indices & (widths[-1] - 1), minlength=widths[-1])]
    for _ in widths[1:]:
        merged = rows[-1][::2].copy()
        merged[: rows[-1].size // 2] += rows[-1][1::2]
        rows.append(merged)
        columns.append(columns[-1].reshape(2, -1).sum(axis=0))
    return list(zip(rows, reversed(columns), strict=True))


def _line_bits(lines: list[Lines]) -> Integers:
    """A score of each width: the marks coded row by row, and column by column, and a bit for each line."""
    counts = np.array([axis.size for pair in lines for axis in pair])
    lengths = counts.reshape(-1, 2)[:, ::-1].ravel()  # a row is as long as there are columns
    bits = least_bits(np.repeat(lengths, counts), np.concatenate([axis for pair in lines for axis in pair]))
    by_axis = np.add.reduceat(bits, np.cumsum(counts) - counts) + counts
    scores: Integers = by_axis.reshape(-1, 2).sum(axis=1)
    return scores


def _axis(marks: Integers, length: int) -> Axis:
    """Levels for lines of `length` coordinates with so many `marks`, denser lines in higher levels."""
    order = np.argsort(marks, kind="stable")
    below = np.zeros(marks.size + 1, np.int64)  # marks in all lines before this one
    np.cumsum(marks[order], out=below[1:])
    bounds = np.array([0, marks.size])
    for _ in range(DEPTH):
        bounds = np.sort(np.concatenate([bounds, _cuts(below, length, bounds)]))
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
    middle = below[cuts]
    marks = np.concatenate([middle - below[first], below[last] - middle])
    lower, upper = least_bits(sizes, marks).reshape(2, -1)
    bits = lower + upper
    runs = zip(starts.tolist(), ends.tolist(), strict=True)
    return [int(cuts[start + bits[start:end].argmin()]) for start, end in runs]


def _cheapest(finest: Grid, marks: Integers, bare: int) -> tuple[Grid, Integers] | None:
    """The best of the finest grid and its coarser ones, if it is below `bare` bits."""
    levels = 1 << DEPTH
    sizes, united = (_UNITED @ cells.reshape(levels, levels) @ _UNITED.T for cells in (finest.sizes, marks))
    cell_bits = least_bits(sizes, united) + bit_length(np.minimum(sizes, marks.sum()))
    bits = np.add.reduceat(np.add.reduceat(cell_bits, _FIRST, axis=0), _FIRST, axis=1)  # of each pair of depths
    depths = np.arange(DEPTH + 1)
    bits += _HEADER_BITS + depths[:, None] * finest.rows.levels.size + depths * finest.columns.levels.size
    best = 1 + int(np.argmin(bits.ravel()[1:]))  # not depths 0 and 0: that would be no grid
    if bits.ravel()[best] >= bare - bare // _MARGIN:
        return None
    row_depth, column_depth = divmod(best, DEPTH + 1)
    cells = united[_of_depth(row_depth), _of_depth(column_depth)]
    return Grid(finest.rows.coarser(row_depth), finest.columns.coarser(column_depth)), cells.ravel()


def _of_depth(depth: int) -> slice:
    """The rows of `_UNITED` that belong to an axis of this depth."""
    return slice((1 << depth) - 1, (2 << depth) - 1)
