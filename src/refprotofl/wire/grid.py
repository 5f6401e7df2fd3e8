"""A vector seen as rows of equal width, rows and columns sorted into levels of like density.

A coordinate's row level and column level name its cell; a cell holds the coordinates where a row of the one
level meets a column of the other, row by row. Laid end to end the cells are a new order of all coordinates,
in which marks that were clustered are spread evenly within each cell.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from refprotofl.wire.bits import Integers, bit_length


@dataclass(frozen=True)
class Axis:
    """The rows or the columns: which of 2**depth levels each belongs to."""

    levels: Integers
    depth: int

    @cached_property
    def sizes(self) -> Integers:
        """How many lines each level has."""
        return np.bincount(self.levels, minlength=1 << self.depth)

    @cached_property
    def by_level(self) -> Integers:
        """The lines, level by level."""
        return np.argsort(self.levels, kind="stable")

    @cached_property
    def starts(self) -> Integers:
        """Where each level starts in `by_level`."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def ranks(self) -> Integers:
        """Of each line, its rank among those of its level."""
        ranks = np.empty_like(self.levels)
        ranks[self.by_level] = np.arange(self.levels.size) - np.repeat(self.starts, self.sizes)
        return ranks

    def coarser(self, depth: int) -> "Axis":
        """The same lines in 2**depth levels, neighbours merged."""
        return Axis(self.levels >> (self.depth - depth), depth)


@dataclass(frozen=True)
class Grid:
    """Rows and columns that cover a vector; what lies beyond its end stays unmarked."""

    rows: Axis
    columns: Axis

    @property
    def width(self) -> int:
        return self.columns.levels.size

    @cached_property
    def sizes(self) -> Integers:
        """Of each cell, its number of coordinates."""
        return np.outer(self.rows.sizes, self.columns.sizes).ravel()

    @cached_property
    def starts(self) -> Integers:
        """Where each cell starts in the new order."""
        return np.cumsum(self.sizes) - self.sizes

    def count_widths(self, total: int) -> Integers:
        """Bits that hold a cell's number of marks, when there are `total` marks."""
        return bit_length(np.minimum(self.sizes, total))

    def cells(self, indices: Integers) -> Integers:
        """Each coordinate's cell."""
        rows, columns = self._lines(indices)
        return (self.rows.levels << self.columns.depth)[rows] + self.columns.levels[columns]

    def places(self, indices: Integers) -> Integers:
        """Each coordinate's place in the new order."""
        rows, columns = self._lines(indices)
        levels = 1 << self.columns.depth
        # Where each row's coordinates of each column level start: few numbers, so that marks need few look-ups.
        starts = self.starts.reshape(-1, levels)[self.rows.levels] + np.outer(self.rows.ranks, self.columns.sizes)
        places: Integers = starts.ravel()[rows * levels + self.columns.levels[columns]] + self.columns.ranks[columns]
        return places

    def indices(self, places: Integers, marks: Integers) -> Integers:
        """The coordinates at ascending `places`, `marks` of them in each cell."""
        columns_of = np.tile(self.columns.sizes, self.rows.sizes.size)
        down, across = np.divmod(places - np.repeat(self.starts, marks), np.repeat(columns_of, marks))
        row_starts = np.repeat(self.rows.starts, self.columns.sizes.size)
        column_starts = np.tile(self.columns.starts, self.rows.sizes.size)
        rows = (self.rows.by_level * self.width)[np.repeat(row_starts, marks) + down]
        indices: Integers = rows + self.columns.by_level[np.repeat(column_starts, marks) + across]
        return indices

    def _lines(self, indices: Integers) -> tuple[Integers, Integers]:
        """Each coordinate's row and column; most widths are powers of two, which need no division."""
        if self.width & (self.width - 1):
            return np.divmod(indices, self.width)
        return indices >> (self.width.bit_length() - 1), indices & (self.width - 1)
