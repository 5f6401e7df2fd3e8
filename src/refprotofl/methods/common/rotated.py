"""Vectors in a few bits a value: rotated at random, so that every block looks Gaussian, then quantised for that.

A block of values is multiplied by random signs and by a Hadamard matrix. What comes out is close to Gaussian whatever
the block was, and the quantiser of Lloyd and Max for a Gaussian is close to the best that a scalar one can be
(Vargaftik et al., DRIVE 2021, EDEN 2022). Blocks that are larger get more of the bits: each bit goes where it lessens
the error most, and what is left goes to the first values of the block that would be next. Which that is follows from
the blocks' scales, which both sides have, so nothing is sent of it. In the code, the values of 8 bits come first.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.methods.common.lloyd_max import GAINS, MOST_BITS, edges, error, levels
from refprotofl.methods.common.rotation import Coded, Draw, root_mean_squares, rotated, unrotated, widths


def code_bytes(size: int, bits: float) -> int:
    """Of a vector of `size` with so many bits a value, scales apart."""
    return math.ceil(size * bits / 8)


def encode_rotated(vector: Tensor, length: int, draw: Draw) -> Coded:
    """The vector (P,) in a code of `length` bytes."""
    turned = rotated(vector, draw)
    scales = root_mean_squares(turned, len(vector))
    values, of_value = turned.numpy(), _of_values(scales, len(vector))
    pieces = [np.zeros(0, np.uint8)]
    for bits, places in _by_bits(_allot(scales, len(vector), length)):
        level = np.searchsorted(edges(bits), values[places] / of_value[places]).astype(np.uint8)
        pieces.append(np.unpackbits(level[:, None], axis=1)[:, -bits:].ravel())
    packed = np.packbits(np.concatenate(pieces))
    code = np.zeros(length, np.uint8)
    code[: len(packed)] = packed
    return Coded(torch.from_numpy(code), scales)


def decode_rotated(coded: Coded, size: int, draw: Draw, unbiased: bool = False) -> Tensor:
    """What the code says, (P,) float32; the code and the scales must be as long as they were made.

    Its levels are means of cells, nearest to what was coded but shorter; `unbiased` makes up for that (EDEN's scale),
    as far as a block was coded at all.
    """
    raw, start = np.unpackbits(coded.code.numpy()), 0
    of_value = _of_values(coded.scales, size)
    values = np.zeros(len(of_value))
    for bits, places in _by_bits(_allot(coded.scales, size, len(coded.code))):
        end = start + len(places) * bits
        level = np.packbits(raw[start:end].reshape(-1, bits), axis=1, bitorder="big").ravel() >> (8 - bits)
        meant = levels(bits) / (1 - error(bits)) if unbiased else levels(bits)
        values[places], start = of_value[places] * meant[level], end
    return unrotated(torch.from_numpy(values), size, draw)


def _of_values(scales: Tensor, size: int) -> NDArray[np.float64]:
    """The scale of each value's block."""
    return np.repeat(scales.to(torch.float64).numpy(), widths(size))


def _by_bits(bits: NDArray[np.uint8]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Where the values of 8 bits are, of 7 and so on, from the bits of each value (n,)."""
    for one in range(MOST_BITS, 0, -1):
        places = np.flatnonzero(bits == one)
        if places.size:
            yield one, places


def _allot(scales: Tensor, size: int, length: int) -> NDArray[np.uint8]:
    """Bits of each value within 8 * length in all: block by block to whom a bit takes the most error off.

    Products of whole gains and squared 16-bit scales are exact, and equal ones go by their place: so both sides agree.
    """
    of_blocks = widths(size)
    wanted = (scales.to(torch.float64).square().numpy()[:, None] * GAINS).ravel()  # falling for each block
    order = np.argsort(-wanted, kind="stable")
    order = order[wanted[order] > 0] // MOST_BITS  # blocks, as their turns come
    spent = np.cumsum(of_blocks[order])
    turns = int(np.searchsorted(spent, 8 * length, side="right"))
    bits = np.repeat(np.bincount(order[:turns], minlength=len(of_blocks)).astype(np.uint8), of_blocks)
    if turns < len(order):
        left = 8 * length - (int(spent[turns - 1]) if turns else 0)
        start = int(of_blocks[: order[turns]].sum())
        bits[start : start + left] += 1
    return bits
