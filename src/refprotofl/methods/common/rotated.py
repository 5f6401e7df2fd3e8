"""Vectors in a few bits a value: rotated at random, so that every block looks Gaussian, then quantised for that.

A block of values is multiplied by random signs and by a Hadamard matrix. What comes out is close to Gaussian whatever
the block was, and the quantiser of Lloyd and Max for a Gaussian is close to the best that a scalar one can be
(Vargaftik et al., DRIVE 2021, EDEN 2022). Blocks that are larger get more of the bits: each bit goes where it lessens
the error most. Which that is follows from the blocks' scales, which both sides have, so nothing is sent of it.
"""

import math
from functools import cache

import numpy as np
import torch
from scipy.special import ndtr, ndtri
from torch import Tensor

from refprotofl.methods.common.rotation import Coded, Draw, gaussian, root_mean_squares, rotated, unrotated, widths

MOST_BITS = 8


def code_bytes(size: int, bits: float) -> int:
    """Of a vector of `size` with so many bits a value, scales apart."""
    return math.ceil(size * bits / 8)


def encode_rotated(vector: Tensor, length: int, draw: Draw) -> Coded:
    """The vector (P,) in a code of `length` bytes."""
    rows = rotated(vector, draw)
    scales = root_mean_squares(rows)
    pieces = []
    for row, scale, bits in zip(rows, scales.to(torch.float64).tolist(), _allotted(rows, scales, length), strict=True):
        if bits:
            level = np.searchsorted(edges(bits), (row / scale).numpy())
            pieces.append((level[:, None] >> np.arange(bits)[::-1] & 1).astype(np.uint8).ravel())
    packed = np.packbits(np.concatenate(pieces)) if pieces else np.zeros(0, np.uint8)
    code = np.zeros(length, np.uint8)
    code[: len(packed)] = packed
    return Coded(torch.from_numpy(code), scales)


def decode_rotated(coded: Coded, size: int, draw: Draw) -> Tensor:
    """What the code says, (P,) float32; the code and the scales must be as long as they were made."""
    lengths = widths(size)
    raw, start, rows = np.unpackbits(coded.code.numpy()), 0, []
    allotted = _allot(lengths, coded.scales, len(coded.code))
    for width, scale, bits in zip(lengths, coded.scales.to(torch.float64).tolist(), allotted, strict=True):
        if not bits:
            rows.append(torch.zeros(width, dtype=torch.float64))
            continue
        digits = raw[start : start + width * bits].reshape(width, bits)
        level = digits @ (1 << np.arange(bits)[::-1])
        rows.append(torch.from_numpy(scale * levels(bits)[level]))
        start += width * bits
    return unrotated(rows, size, draw)


# The quantiser


@cache
def levels(bits: int) -> np.ndarray:
    """What the symbols stand for, of a Gaussian of variance 1: the means of the cells between the edges."""
    return _lloyd_max(bits)[0]


@cache
def edges(bits: int) -> np.ndarray:
    return _lloyd_max(bits)[1]


@cache
def error(bits: int) -> float:
    """The mean squared error that is left of a Gaussian of variance 1."""
    cells = ndtr(np.append(edges(bits), np.inf)) - ndtr(np.append(-np.inf, edges(bits))) if bits else 1.0
    return float(1 - np.sum(cells * levels(bits) ** 2))


def _lloyd_max(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges half-way between levels, levels at the means of their cells, until neither moves.

    It starts where the best levels are if there are many: as dense as the cube root of the density.
    """
    count = 1 << bits
    middles = math.sqrt(3) * ndtri((np.arange(count) + 0.5) / count)
    for _ in range(2_000):
        between = (middles[1:] + middles[:-1]) / 2
        whole = np.concatenate([[-np.inf], between, [np.inf]])
        means = (gaussian(whole[:-1]) - gaussian(whole[1:])) / (ndtr(whole[1:]) - ndtr(whole[:-1]))
        if np.abs(means - middles).max() < 1e-9:
            break
        middles = means
    return middles, (middles[1:] + middles[:-1]) / 2


# Which block has how many bits


def _allotted(rows: list[Tensor], scales: Tensor, length: int) -> list[int]:
    return _allot([len(row) for row in rows], scales, length)


def _allot(widths: list[int], scales: Tensor, length: int) -> list[int]:
    """Bits a value of each block within 8 * length in all: bit by bit to whom it takes the most error off."""
    energy = scales.to(torch.float64).square().numpy()
    gains = np.array([error(bits) - error(bits + 1) for bits in range(MOST_BITS)])
    wanted = energy[:, None] * gains  # (blocks, bits), falling in each row
    left, bits, stopped = 8 * length, [0] * len(widths), [False] * len(widths)
    for place in np.argsort(-wanted, axis=None, kind="stable").tolist():
        block = place // MOST_BITS
        if wanted.flat[place] <= 0 or stopped[block]:
            continue
        if widths[block] > left:
            stopped[block] = True
            continue
        bits[block] += 1
        left -= widths[block]
    return bits
