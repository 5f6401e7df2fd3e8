"""The index code: a set of coordinates of a long vector in about as few bytes as it can take.

    number of marks  (varint; nothing follows if no coordinate or every coordinate is marked)
    depths           (one byte: row depth + 4 * column depth; 0 means no grid)
    if a grid:       width (varint), the level of each row, of each column, the marks of each cell
    gaps             (Golomb's code, cell by cell)
    padding          (zero bits up to a byte)

Marked coordinates of a real update are not spread evenly: the feature layer is a matrix, the rows of silent
units and the columns of silent inputs are nearly empty, those of busy ones full. So the vector is seen as a
grid (index_grid.py) whose rows and columns are sorted into up to eight levels of density each. Within a cell, where a
row level meets a column level, marks are close to random, and Golomb's code of the gaps is near the minimum. In a cell
more than half full the unmarked positions are coded instead. With one level of columns this is a code of blocks with
their own density; with no grid it is plain Golomb.

Where marks are random with density k/n, gaps are geometric, and Golomb's code with parameter m ~ ln(2) n/k is the best
code that spends whole bits on each gap. A gap g is sent as g % m in truncated binary and g // m in unary (that many
zeros and a one). The parts of all gaps are kept apart (the remainders, the last bits of the long remainders, the unary
parts), so that numpy reads and writes each part as a whole. Everything is integer arithmetic: every machine makes the
same choices.

The encoder's choice of grid depends on the set alone, so a set has one code; the decoder takes any grid, as another
one costs only its sender. Time and memory follow the number of marks, never the claimed length of the vector.
"""

import numpy as np
from numpy.typing import NDArray

from refprotofl.wire.index_grid import DEPTH, Axis, Grid, allows_grid, fit
from refprotofl.wire.primitives import BitReader, Bits, Integers, Reader, WireError, bit_fields, bit_length, varint


def golomb_parameters(sizes: Integers, marks: Integers) -> Integers:
    """Return Golomb's m for cells of these sizes and numbers of marks: max(1, floor(0.693 n/k + 0.153))."""
    rounded: Integers = (710 * sizes + 157 * marks) // np.maximum(1024 * marks, 1)
    return np.maximum(rounded, 1)


def encode_gaps(positions: Integers, sizes: Integers, marks: Integers) -> Bits:
    """Encode ascending positions in the concatenation of all cells, `marks` of them in each cell."""
    parameter, width, short = (np.repeat(each, marks) for each in _remainder_code(sizes, marks))
    before = np.empty_like(positions)
    before[1:] = positions[:-1]
    held = marks > 0
    before[(np.cumsum(marks) - marks)[held]] = (np.cumsum(sizes) - sizes)[held] - 1
    quotients, remainders = np.divmod(positions - before - 1, parameter)

    long = remainders >= short
    remainders[long] += short[long]
    ends = np.cumsum(quotients + 1)
    unary = np.zeros(int(ends[-1]) if ends.size else 0, np.uint8)
    unary[ends - 1] = 1
    last_bits = (remainders[long] & 1).astype(np.uint8)
    return np.concatenate([bit_fields(np.where(long, remainders >> 1, remainders), width), last_bits, unary])


def decode_gaps(bits: BitReader, sizes: Integers, marks: Integers) -> Integers:
    """Decode the positions that `encode_gaps` encoded; each is within its cell."""
    divisors, widths, shorts = _remainder_code(sizes, marks)
    total = int(marks.sum())
    if int(widths @ marks) + total > bits.left:
        raise WireError("truncated: the index code ends early")
    remainders = bits.fields(np.repeat(widths, marks))
    short = np.repeat(shorts, marks)
    long = remainders >= short
    last_bits = bits.take(int(np.count_nonzero(long)))
    remainders[long] = 2 * remainders[long] + last_bits - short[long]

    most = sizes // divisors  # the sum of a cell's quotients cannot be more
    ends = bits.ones(total, total + int(most.sum()))
    held = marks > 0
    last = np.cumsum(marks)[held] - 1  # the last mark of each cell that has any
    if (np.diff(ends[last], prepend=-1) - marks[held] > most[held]).any():
        raise WireError("malformed: an index outside of the tensor")
    steps = np.diff(ends, prepend=-1) - 1  # the quotients
    steps *= np.repeat(divisors, marks)
    steps += remainders + 1
    reached = np.cumsum(steps)
    offsets = np.cumsum(sizes)[held] - sizes[held] - 1 - np.append(0, reached[last])[:-1]
    if (reached[last] + offsets - np.cumsum(sizes)[held] >= 0).any():
        raise WireError("malformed: an index outside of the tensor")
    positions: Integers = reached + np.repeat(offsets, marks[held])
    return positions


def _remainder_code(sizes: Integers, marks: Integers) -> tuple[Integers, Integers, Integers]:
    """Return for each cell its parameter, the fewest bits of a remainder, and the bound of remainders that short."""
    parameter = golomb_parameters(sizes, marks)
    width = bit_length(parameter) - 1
    return parameter, width, (2 << width) - parameter


MAX_SIZE = 1 << 40  # keeps all arithmetic within 64 bits


def encode_indices(indices: Integers, size: int) -> bytes:
    """Encode strictly ascending `indices` in [0, size)."""
    total = indices.size
    if total in (0, size):
        return varint(total)
    fitted = fit(indices, size)
    if fitted is None:
        head, bits = b"\x00", _gap_bits(indices, np.array([size]), np.array([total]))
    else:
        head, bits = _grid_head(fitted[0]), _grid_bits(*fitted, indices)
    return varint(total) + head + np.packbits(bits).tobytes()


def decode_indices(reader: Reader, size: int, most: int) -> Integers:
    """Decode indices; more than `most` of them are refused before they are read."""
    total = reader.varint()
    if total > size:
        raise WireError(f"malformed: {total} indices in a tensor of {size}")
    if total > most:
        raise WireError(f"truncated: {total} indices announced, but only bytes for {most} values")
    if total in (0, size):
        return np.arange(total)
    indices = _ascending(_read_marked(reader, size, total))
    if indices[-1] >= size:
        raise WireError(f"malformed: index {indices[-1]} in a tensor of {size}")
    return indices


def describe(code: bytes) -> str:
    """Return the variant that a code uses, in words."""
    reader = Reader(code)
    reader.varint()
    depths = reader.byte() if reader.left else 0
    if not depths:
        return "golomb" if reader.left else "empty or full"
    return f"grid of width {reader.varint()}, {1 << depths % 4} x {1 << depths // 4} levels"


def _grid_head(grid: Grid) -> bytes:
    return bytes([grid.rows.depth + 4 * grid.columns.depth]) + varint(grid.width)


def _grid_bits(grid: Grid, marks: Integers, indices: Integers) -> Bits:
    tables = [_axis_bits(axis) for axis in (grid.rows, grid.columns)]
    counts = bit_fields(marks, grid.count_widths(indices.size))
    return np.concatenate([*tables, counts, _gap_bits(_ascending(grid.positions(indices)), grid.sizes, marks)])


def _axis_bits(axis: Axis) -> Bits:
    return bit_fields(axis.levels, np.full_like(axis.levels, axis.depth))


def _gap_bits(positions: Integers, sizes: Integers, marks: Integers) -> Bits:
    dense = 2 * marks > sizes
    coded = np.where(dense, sizes - marks, marks)
    return encode_gaps(_toggle(positions, sizes, marks, dense), sizes, coded)


def _read_marked(reader: Reader, size: int, total: int) -> Integers:
    """Read the marked coordinates in any order; some may be beyond `size`."""
    depths = reader.byte()
    row_depth, column_depth = depths % 4, depths // 4
    if max(row_depth, column_depth) > DEPTH:
        raise WireError(f"malformed: unknown index code {depths}")
    width = reader.varint() if depths else 0
    if depths and not allows_grid(size, width, total):
        raise WireError(f"malformed: a grid of width {width} for {total} indices in {size}")
    bits = BitReader(reader.peek())
    if depths:
        rows = _read_axis(bits, -(-size // width), row_depth)
        indices = _read_in_grid(bits, Grid(rows, _read_axis(bits, width, column_depth)), total)
    else:
        indices = _read_positions(bits, np.array([size]), np.array([total]))
    reader.take(bits.bytes_read)
    if not bits.padded_with_zeros:
        raise WireError("malformed: bits after the end of the index code")
    return indices


def _read_in_grid(bits: BitReader, grid: Grid, total: int) -> Integers:
    marks = bits.fields(grid.count_widths(total))
    if int(marks.sum()) != total or (marks > grid.sizes).any():
        raise WireError("malformed: counts of indices that do not add up")
    return grid.indices(_read_positions(bits, grid.sizes, marks), marks)


def _read_axis(bits: BitReader, lines: int, depth: int) -> Axis:
    if lines * depth > bits.left:
        raise WireError("truncated: the index code ends early")
    return Axis(bits.fields(np.full(lines, depth)), depth)


def _read_positions(bits: BitReader, sizes: Integers, marks: Integers) -> Integers:
    dense = 2 * marks > sizes
    coded = np.where(dense, sizes - marks, marks)
    return _toggle(decode_gaps(bits, sizes, coded), sizes, coded, dense)


def _toggle(positions: Integers, sizes: Integers, marks: Integers, dense: NDArray[np.bool_]) -> Integers:
    """Exchange marked and unmarked positions in dense cells; the result is ascending."""
    if not dense.any():
        return positions
    is_dense = np.repeat(dense, marks)
    # The dense cells alone, laid end to end: no longer than twice the marks of the fuller side.
    dense_sizes = np.where(dense, sizes, 0)
    shifts = (np.cumsum(sizes) - sizes) - (np.cumsum(dense_sizes) - dense_sizes)
    absent = np.ones(int(dense_sizes.sum()), bool)
    absent[positions[is_dense] - np.repeat(shifts, np.where(dense, marks, 0))] = False
    others = np.flatnonzero(absent) + np.repeat(shifts, np.where(dense, sizes - marks, 0))
    now_dense = np.repeat(dense, np.where(dense, sizes - marks, marks))
    toggled = np.empty(now_dense.size, np.int64)
    toggled[now_dense] = others
    toggled[~now_dense] = positions[~is_dense]
    return toggled


def _ascending(numbers: Integers) -> Integers:
    """Sort numbers; most fit into 32 bits, which are sorted in half the time."""
    if numbers.max(initial=0) < 1 << 31:
        return np.sort(numbers.astype(np.int32)).astype(np.int64)
    return np.sort(numbers)
