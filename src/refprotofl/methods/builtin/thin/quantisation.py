"""A vector in a code of any length: rotated blocks, of which larger ones get more of the bits.

Each bit is given where it reduces the error most, and the rest to the first values of the block that would be next. The
allotment follows from the blocks' scales, which both sides have, so nothing is sent of it. In the code, the values of 8
bits come first.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.methods import Draw
from refprotofl.methods.common.rotated_quantiser import (
    MOST_BITS,
    error,
    from_bits,
    levels,
    of_values,
    quantised,
    rotated,
    to_bits,
    unrotated,
    widths,
)


@dataclass(frozen=True)
class Coded:
    """A vector as it is sent."""

    code: Tensor  # (bytes,) uint8
    scales: Tensor  # (blocks,) bfloat16: how large each block is


# The error that each further bit removes, in parts of 2**24: times the square of a 16-bit scale that is exact in
# float64, so that both sides put products of them in the same order.
GAINS = np.array([round((before - after) * 2**24) for before, after in pairwise(map(error, range(MOST_BITS + 1)))])


def root_mean_squares(values: Tensor, size: int) -> Tensor:
    """Return the scale of each rotated block of a vector of `size`, (blocks,)."""
    blocks = values.split(widths(size).tolist())
    return torch.stack([block.square().mean().sqrt() for block in blocks]).to(torch.bfloat16)


def code_bytes(size: int, bits: float) -> int:
    """Return the length of the code of a vector of `size` with `bits` per value, without scales."""
    return math.ceil(size * bits / 8)


def encode_rotated(vector: Tensor, length: int, draw: Draw) -> Coded:
    """Encode the vector (P,) in a code of `length` bytes."""
    turned = rotated(vector, draw)
    scales = root_mean_squares(turned, len(vector))
    values, of_value = turned.numpy(), of_values(scales, len(vector))
    pieces = [np.zeros(0, np.uint8)]
    for bits, indices in _by_bits(_allot(scales, len(vector), length)):
        pieces.append(to_bits(quantised(values[indices] / of_value[indices], bits), bits))
    packed = np.packbits(np.concatenate(pieces))
    code = np.zeros(length, np.uint8)
    code[: len(packed)] = packed
    return Coded(torch.from_numpy(code), scales)


def decode_rotated(coded: Coded, size: int, draw: Draw, unbiased: bool = False) -> Tensor:
    """Decode a vector (P,) float32; the code and the scales must be as long as they were made.

    Its levels are means of cells, nearest to what was coded but shorter; `unbiased` makes up for that (EDEN's scale as
    it is in the mean), as far as a block was coded at all.
    """
    raw, start = np.unpackbits(coded.code.numpy()), 0
    of_value = of_values(coded.scales, size)
    values = np.zeros(len(of_value))
    for bits, indices in _by_bits(_allot(coded.scales, size, len(coded.code))):
        end = start + len(indices) * bits
        meant = levels(bits) / (1 - error(bits)) if unbiased else levels(bits)
        values[indices], start = of_value[indices] * meant[from_bits(raw[start:end], bits)], end
    return unrotated(torch.from_numpy(values), size, draw)


def _by_bits(bits: NDArray[np.uint8]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the indices of the values of 8 bits, of 7 and so on, from the bits of each value (n,)."""
    for one in range(MOST_BITS, 0, -1):
        indices = np.flatnonzero(bits == one)
        if indices.size:
            yield one, indices


def _allot(scales: Tensor, size: int, length: int) -> NDArray[np.uint8]:
    """Return the bits of each value, 8 * length in all: each to the block where it removes the most error.

    Products of whole gains and squared 16-bit scales are exact, and ties are broken by the index: both sides agree.
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
