"""A random rotation after which every block of a vector looks Gaussian: random signs, then a Hadamard matrix."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BLOCK = 4096  # values that are rotated together

Draw = Callable[[], np.random.Generator]  # the stream of the signs, from its start; both sides have it


@dataclass(frozen=True)
class Coded:
    """A vector as it is sent."""

    code: Tensor  # (bytes,) uint8
    scales: Tensor  # (blocks,) bfloat16: how large each block is


def number_of_blocks(size: int) -> int:
    return -(-size // BLOCK)


def root_mean_squares(rows: list[Tensor]) -> Tensor:
    return torch.stack([row.square().mean().sqrt() for row in rows]).to(torch.bfloat16)


def gaussian(at: np.ndarray) -> np.ndarray:
    """The density of what a rotated block's values are like, its scale being 1."""
    return np.asarray(np.exp(-at * at / 2) / math.sqrt(2 * math.pi))


def widths(size: int) -> list[int]:
    """Of the blocks; the last one is as short as a power of two can be."""
    whole, rest = divmod(size, BLOCK)
    return [BLOCK] * whole + ([1 << (rest - 1).bit_length()] if rest else [])


def _signs(size: int, draw: Draw) -> Iterator[Tensor]:
    lengths = widths(size)
    drawn = torch.from_numpy(draw().integers(0, 2, sum(lengths)).astype(np.float64) * 2 - 1)
    return iter(drawn.split(lengths))


def rotated(vector: Tensor, draw: Draw) -> list[Tensor]:
    lengths = widths(len(vector))
    padded = torch.nn.functional.pad(vector.to(torch.float64), (0, sum(lengths) - len(vector)))
    signs = _signs(len(vector), draw)
    return [hadamard(block * sign) for block, sign in zip(padded.split(lengths), signs, strict=True)]


def unrotated(rows: list[Tensor], size: int, draw: Draw) -> Tensor:
    signs = _signs(size, draw)
    return torch.cat([hadamard(row) * sign for row, sign in zip(rows, signs, strict=True)])[:size].to(torch.float32)


def hadamard(vector: Tensor) -> Tensor:
    """Times the orthonormal Hadamard matrix, which is its own inverse; (n,), n a power of two."""
    size, half = len(vector), 1
    while half < size:
        pairs = vector.view(-1, 2, half)
        vector = torch.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), dim=1).reshape(-1)
        half *= 2
    return vector / math.sqrt(size)
