"""Grids of the index code: a vector as rows of equal width, rows and columns sorted into levels of similar density.

A coordinate's row level and column level determine its cell. A cell holds the coordinates where a row of the one level
meets a column of the other, row by row. The concatenated cells are a new order of all coordinates, in which marks that
were clustered are spread evenly within each cell.

`fit` finds the grid in which a set of indices is shortest. The width that explains most is found from the marks of
single rows and columns. Its rows (and its columns), sorted by their marks, are then cut in two where that saves most,
each part again, and once more: eight levels. Merging neighbours gives the grids with fewer levels; the cheapest is
chosen if it beats no grid. No step depends on the machine: the same set has the same grid everywhere.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from refprotofl.wire.primitives import Integers, bit_length


@dataclass(frozen=True)
class Axis:
    """The level of each row, or of each column, among 2**depth levels."""

    levels: Integers
    depth: int

    @cached_property
    def sizes(self) -> Integers:
        """Return the number of lines of each level."""
        return np.bincount(self.levels, minlength=1 << self.depth)

    @cached_property
    def by_level(self) -> Integers:
        """Return the lines, level by level."""
        return np.argsort(self.levels, kind="stable")

    @cached_property
    def starts(self) -> Integers:
        """Return the start of each level in `by_level`."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def ranks(self) -> Integers:
        """Return the rank of each line within its level."""
        ranks = np.empty_like(self.levels)
        ranks[self.by_level] = np.arange(self.levels.size) - np.repeat(self.starts, self.sizes)
        return ranks

    def coarser(self, depth: int) -> "Axis":
        """Return the same lines in 2**depth levels, with neighbours merged."""
        return Axis(self.levels >> (self.depth - depth), depth)


@dataclass(frozen=True)
class Grid:
    """Rows and columns that cover a vector; coordinates beyond its end stay unmarked."""

    rows: Axis
    columns: Axis

    @property
    def width(self) -> int:
        return self.columns.levels.size

    @cached_property
    def sizes(self) -> Integers:
        """Return the number of coordinates of each cell."""
        return np.outer(self.rows.sizes, self.columns.sizes).ravel()

    @cached_property
    def starts(self) -> Integers:
        """Return the start of each cell in the new order."""
        return np.cumsum(self.sizes) - self.sizes

    def count_widths(self, total: int) -> Integers:
        """Return the bits for the number of marks of each cell, out of `total` marks."""
        return bit_length(np.minimum(self.sizes, total))

    def cells(self, indices: Integers) -> Integers:
        """Return the cell of each coordinate."""
        rows, columns = self._lines(indices)
        return (self.rows.levels << self.columns.depth)[rows] + self.columns.levels[columns]

    def positions(self, indices: Integers) -> Integers:
        """Return the position of each coordinate in the new order."""
        rows, columns = self._lines(indices)
        levels = 1 << self.columns.depth
        # The starts of each row's coordinates of each column level: few numbers, so that marks need few look-ups.
        starts = self.starts.reshape(-1, levels)[self.rows.levels] + np.outer(self.rows.ranks, self.columns.sizes)
        positions: Integers = starts.ravel()[rows * levels + self.columns.levels[columns]] + self.columns.ranks[columns]
        return positions

    def indices(self, positions: Integers, marks: Integers) -> Integers:
        """Return the coordinates at ascending `positions`, `marks` of them in each cell."""
        columns_of = np.tile(self.columns.sizes, self.rows.sizes.size)
        down, across = np.divmod(positions - np.repeat(self.starts, marks), np.repeat(columns_of, marks))
        row_starts = np.repeat(self.rows.starts, self.columns.sizes.size)
        column_starts = np.tile(self.columns.starts, self.rows.sizes.size)
        rows = (self.rows.by_level * self.width)[np.repeat(row_starts, marks) + down]
        indices: Integers = rows + self.columns.by_level[np.repeat(column_starts, marks) + across]
        return indices

    def _lines(self, indices: Integers) -> tuple[Integers, Integers]:
        """Return the row and column of each coordinate; most widths are powers of two, which need no division."""
        if self.width & (self.width - 1):
            return np.divmod(indices, self.width)
        return indices >> (self.width.bit_length() - 1), indices & (self.width - 1)


_SQRT_HALF = 0.7071067811865476
_TWO_OVER_LN_2 = 2.8853900817779268


def least_bits(sizes: Integers, marks: Integers) -> Integers:
    """Return about log2 C(n, k) for each cell of n coordinates with k marks: n H(k / n), to the nearest bit."""
    if sizes.max(initial=0) < _TABLE.size:  # marks never exceed sizes
        bits = _TABLE[sizes] - _TABLE[marks] - _TABLE[sizes - marks]
    else:
        whole, marked, unmarked = _times_log2(np.stack([sizes, marks, sizes - marks]))
        bits = whole - marked - unmarked
    return np.asarray(np.rint(bits, out=bits).astype(np.int64))


def _times_log2(numbers: Integers) -> NDArray[np.float64]:
    """Return x log2 x, which is zero at zero.

    Libraries differ in the last bit of a logarithm, and one bit could choose another grid. Sums, products and
    quotients are the same everywhere, so the logarithm is the series of 2 artanh, good to seven digits.
    """
    mantissas, exponents = np.frexp(numbers.astype(np.float64))
    ratios = (mantissas - _SQRT_HALF) / (mantissas + _SQRT_HALF)
    squares = ratios * ratios
    series = ratios * (1 + squares * (1 / 3 + squares * (1 / 5 + squares / 7)))
    logarithms = exponents - 0.5 + _TWO_OVER_LN_2 * series
    return numbers * logarithms


_TABLE = _times_log2(np.arange(1 << 14))  # one look-up instead of a dozen operations; rows and columns are this small


DEPTH = 3  # at most 2**3 levels of rows and of columns
_WIDTHS = tuple(1 << power for power in range(5, 12))  # 32 to 2048: the usual widths of a layer's input
_HEADER_BITS = 16  # a grid's width
_MARGIN = 64  # gaps take a little more than the least bits, so a grid must save this fraction
# The finest levels that each level of each coarser axis unites: depth 0 has one row here, depth 1 two, and so on.
_UNITED = np.concatenate(
    [np.kron(np.eye(1 << depth, dtype=np.int64), np.ones(1 << (DEPTH - depth), np.int64)) for depth in range(DEPTH + 1)]
)
_FIRST = (1 << np.arange(DEPTH + 1)) - 1  # the first row of each depth

Lines = tuple[Integers, Integers]  # the number of marks of each row, and of each column


def allows_grid(size: int, width: int, total: int) -> bool:
    """Return True if `total` marks in `size` may have a grid of this width; fewer marks cannot pay for its tables."""
    return 0 < width < size and -(-size // width) + width <= 4 * total


def fit(indices: Integers, size: int) -> tuple[Grid, Integers] | None:
    """Return the best grid for ascending `indices` below `size` with the marks of its cells; None if none is best."""
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
    """Return the marks by line for each width, each twice the last, from the narrowest rows and widest columns."""
    rows = [np.bincount(indices >> (widths[0].bit_length() - 1), minlength=-(-size // widths[0]))]
    columns = [np.bincount(indices & (widths[-1] - 1), minlength=widths[-1])]
    for _ in widths[1:]:
        merged = rows[-1][::2].copy()
        merged[: rows[-1].size // 2] += rows[-1][1::2]
        rows.append(merged)
        columns.append(columns[-1].reshape(2, -1).sum(axis=0))
    return list(zip(rows, reversed(columns), strict=True))


def _line_bits(lines: list[Lines]) -> Integers:
    """Return a score for each width: the bits of the marks by row and by column, and a bit for each line."""
    counts = np.array([axis.size for pair in lines for axis in pair])
    lengths = counts.reshape(-1, 2)[:, ::-1].ravel()  # a row is as long as there are columns
    bits = least_bits(np.repeat(lengths, counts), np.concatenate([axis for pair in lines for axis in pair]))
    by_axis = np.add.reduceat(bits, np.cumsum(counts) - counts) + counts
    scores: Integers = by_axis.reshape(-1, 2).sum(axis=1)
    return scores


def _axis(marks: Integers, length: int) -> Axis:
    """Return levels for lines of `length` coordinates with these `marks`, denser lines in higher levels."""
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
    """Return the cut of each run of sorted lines that makes both parts together shortest."""
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
    """Return the best of the finest grid and its coarser ones; None unless it takes fewer than `bare` bits."""
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
    """Return the rows of `_UNITED` that belong to an axis of this depth."""
    return slice((1 << depth) - 1, (2 << depth) - 1)
