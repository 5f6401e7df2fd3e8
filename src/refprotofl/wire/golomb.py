"""Golomb's code for the gaps between the marked places of several cells, each with a parameter of its own.

Where marks fall at random with density k/n, gaps are geometric and Golomb's code with parameter
m ~ ln(2) n/k is the best code that spends whole bits on each gap. A gap g is sent as g % m in truncated
binary and g // m in unary (that many zeros and a one). The parts of all gaps are kept apart (the remainders,
the last bits of the long remainders, the unary parts), so that numpy reads and writes each part as a whole.
Everything here is integer arithmetic: every machine makes the same choices.
"""

import numpy as np

from refprotofl.wire.bits import BitReader, Bits, Integers, bit_length, fields
from refprotofl.wire.error import WireError


def parameters(sizes: Integers, marks: Integers) -> Integers:
    """Golomb's m for cells of `sizes` places with `marks` marked: max(1, floor(0.693 n/k + 0.153))."""
    rounded: Integers = (710 * sizes + 157 * marks) // np.maximum(1024 * marks, 1)
    return np.maximum(rounded, 1)


def write(places: Integers, sizes: Integers, marks: Integers) -> Bits:
    """Ascending places, the cells laid end to end, as bits; `marks` says how many belong to each cell."""
    starts, parameter = _spread(sizes, marks)
    before = np.empty_like(places)
    before[1:] = places[:-1]
    first = _first_of_cell(marks)
    before[first] = starts[first] - 1
    quotients, remainders = np.divmod(places - before - 1, parameter)

    width = bit_length(parameter) - 1
    short = (2 << width) - parameter  # remainders below this take `width` bits, the others one more
    long = remainders >= short
    remainders[long] += short[long]
    unary = np.zeros(int(quotients.sum()) + places.size, np.uint8)
    unary[np.cumsum(quotients + 1) - 1] = 1
    last_bits = (remainders[long] & 1).astype(np.uint8)
    return np.concatenate([fields(np.where(long, remainders >> 1, remainders), width), last_bits, unary])


def read(bits: BitReader, sizes: Integers, marks: Integers) -> Integers:
    """The places that `write` was given; each is within its cell."""
    starts, parameter = _spread(sizes, marks)
    width = bit_length(parameter) - 1
    if int(width.sum()) + width.size > bits.left:
        raise WireError("truncated: the index code ends early")
    remainders = bits.fields(width)
    short = (2 << width) - parameter
    long = remainders >= short
    last_bits = bits.take(int(np.count_nonzero(long)))
    remainders[long] = 2 * remainders[long] + last_bits - short[long]

    most = sizes // parameters(sizes, marks)  # the sum of a cell's quotients cannot be more
    ends = bits.ones(width.size, width.size + int(most.sum()))
    quotients = np.diff(ends, prepend=-1) - 1
    cells = np.repeat(np.arange(sizes.size), marks)
    if (np.bincount(cells, quotients, sizes.size) > most).any():
        raise WireError("malformed: an index outside of the tensor")
    steps = quotients * parameter + remainders + 1
    reached = np.cumsum(steps)
    first = _first_of_cell(marks)
    places: Integers = reached - np.repeat((reached - steps)[first], marks[marks > 0]) + starts - 1
    if (places >= starts + sizes[cells]).any():
        raise WireError("malformed: an index outside of the tensor")
    return places


def _spread(sizes: Integers, marks: Integers) -> tuple[Integers, Integers]:
    """For each mark, where its cell starts and its cell's parameter."""
    starts = np.cumsum(sizes) - sizes
    return np.repeat(starts, marks), np.repeat(parameters(sizes, marks), marks)


def _first_of_cell(marks: Integers) -> Integers:
    """Which marks are the first of their cell."""
    return (np.cumsum(marks) - marks)[marks > 0]
