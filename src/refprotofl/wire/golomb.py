"""Golomb's code for the gaps between the marked places of several cells, each with a parameter of its own.

Where marks fall at random with density k/n, gaps are geometric and Golomb's code with parameter
m ~ ln(2) n/k is the best code that spends whole bits on each gap. A gap g is sent as g % m in truncated
binary and g // m in unary (that many zeros and a one). The parts of all gaps are kept apart (the remainders,
the last bits of the long remainders, the unary parts), so that numpy reads and writes each part as a whole.
Everything here is integer arithmetic: every machine makes the same choices.
"""

import numpy as np

from refprotofl.wire.bits import BitReader, Bits, Integers, bit_length, fields
from refprotofl.wire.reader import WireError


def parameters(sizes: Integers, marks: Integers) -> Integers:
    """Golomb's m for cells of `sizes` places with `marks` marked: max(1, floor(0.693 n/k + 0.153))."""
    rounded: Integers = (710 * sizes + 157 * marks) // np.maximum(1024 * marks, 1)
    return np.maximum(rounded, 1)


def write(places: Integers, sizes: Integers, marks: Integers) -> Bits:
    """Ascending places, the cells laid end to end, as bits; `marks` says how many belong to each cell."""
    parameter, width, short = (np.repeat(each, marks) for each in _remainder_code(sizes, marks))
    before = np.empty_like(places)
    before[1:] = places[:-1]
    held = marks > 0
    before[(np.cumsum(marks) - marks)[held]] = (np.cumsum(sizes) - sizes)[held] - 1
    quotients, remainders = np.divmod(places - before - 1, parameter)

    long = remainders >= short
    remainders[long] += short[long]
    ends = np.cumsum(quotients + 1)
    unary = np.zeros(int(ends[-1]) if ends.size else 0, np.uint8)
    unary[ends - 1] = 1
    last_bits = (remainders[long] & 1).astype(np.uint8)
    return np.concatenate([fields(np.where(long, remainders >> 1, remainders), width), last_bits, unary])


def read(bits: BitReader, sizes: Integers, marks: Integers) -> Integers:
    """The places that `write` was given; each is within its cell."""
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
    places: Integers = reached + np.repeat(offsets, marks[held])
    return places


def _remainder_code(sizes: Integers, marks: Integers) -> tuple[Integers, Integers, Integers]:
    """Of each cell, its parameter, the least bits of a remainder, and which remainders take no more than these."""
    parameter = parameters(sizes, marks)
    width = bit_length(parameter) - 1
    return parameter, width, (2 << width) - parameter
