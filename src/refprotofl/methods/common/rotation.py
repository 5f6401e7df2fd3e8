"""A random rotation after which every block of a vector looks Gaussian: random signs, then a Hadamard matrix."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BLOCK = 4096  # values that are rotated together
_AT_ONCE = 16  # blocks: as many as stay in a processor's cache

Draw = Callable[[], np.random.Generator]  # the stream of the signs, from its start; both sides have it


@dataclass(frozen=True)
class Coded:
    """A vector as it is sent."""

    code: Tensor  # (bytes,) uint8
    scales: Tensor  # (blocks,) bfloat16: how large each block is


def number_of_blocks(size: int) -> int:
    return -(-size // BLOCK)


def gaussian(at: np.ndarray) -> np.ndarray:
    """The density of what a rotated block's values are like, its scale being 1."""
    return np.asarray(np.exp(-at * at / 2) / math.sqrt(2 * math.pi))


def widths(size: int) -> np.ndarray:
    """Of the blocks; the last one is as short as a power of two can be."""
    whole, rest = divmod(size, BLOCK)
    return np.array([BLOCK] * whole + ([1 << (rest - 1).bit_length()] if rest else []), np.int64)


def rotated(vector: Tensor, draw: Draw) -> Tensor:
    """The blocks of a vector (P,), rotated, one after the other: (sum of their widths,) float64."""
    signs = _signs(len(vector), draw)
    padded = torch.nn.functional.pad(vector.to(torch.float64), (0, len(signs) - len(vector)))
    return _by_blocks(padded * signs)


def unrotated(values: Tensor, size: int, draw: Draw) -> Tensor:
    """The vector (P,) float32 whose rotated blocks these are."""
    return (_by_blocks(values) * _signs(size, draw))[:size].to(torch.float32)


def root_mean_squares(values: Tensor, size: int) -> Tensor:
    """Of each of the rotated blocks of a vector of `size`."""
    blocks = values.split(widths(size).tolist())
    return torch.stack([block.square().mean().sqrt() for block in blocks]).to(torch.bfloat16)


def hadamard(vectors: Tensor) -> Tensor:
    """Times the orthonormal Hadamard matrix, which is its own inverse; (…, n), n a power of two.

    By sums and differences in a fixed order, so that every machine has the same bits.
    """
    size, half = vectors.shape[-1], 1
    while half < size:
        pairs = vectors.view(-1, 2, half)
        first, second = pairs[:, 0], pairs[:, 1]
        vectors = torch.stack((first + second, first - second), dim=1).view(vectors.shape)
        half *= 2
    return vectors / math.sqrt(size)


def _by_blocks(values: Tensor) -> Tensor:
    whole = len(values) // BLOCK * BLOCK
    turned = [hadamard(some).flatten() for some in values[:whole].view(-1, BLOCK).split(_AT_ONCE)]
    return torch.cat([*turned, hadamard(values[whole:])] if whole < len(values) else turned)


def _signs(size: int, draw: Draw) -> Tensor:
    drawn = draw().integers(0, 2, int(widths(size).sum())).astype(np.float64)
    return torch.from_numpy(drawn * 2 - 1)
