"""The rotated quantiser: blocks of values, rotated at random so that they look Gaussian, in the best levels for that.

A block of values is multiplied by random signs and by a Hadamard matrix. The result is close to Gaussian whatever the
block was, and the quantiser of Lloyd and Max for a Gaussian of variance 1 is close to the best that a scalar one can be
(Vargaftik et al., DRIVE 2021, EDEN 2022).

The quantiser's levels, from 1 to 8 bits, are constants: computed anew they might differ in a last bit from machine to
machine, and with it what two sides make of one message. A test computes them.
"""

import math
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.methods import Draw

BLOCK = 4096  # values that are rotated together
_AT_ONCE = 16  # blocks: as many as stay in a processor's cache


def number_of_blocks(size: int) -> int:
    return -(-size // BLOCK)


def gaussian(at: np.ndarray) -> np.ndarray:
    """Return the density of a rotated block's values, whose scale is 1."""
    return np.asarray(np.exp(-at * at / 2) / math.sqrt(2 * math.pi))


def widths(size: int) -> np.ndarray:
    """Return the widths of the blocks (blocks,); the last one is as short as a power of two can be."""
    whole, rest = divmod(size, BLOCK)
    return np.array([BLOCK] * whole + ([1 << (rest - 1).bit_length()] if rest else []), np.int64)


def rotated(vector: Tensor, draw: Draw) -> Tensor:
    """Rotate the blocks of a vector (P,), one after the other: (sum of their widths,) float64."""
    signs = _signs(len(vector), draw)
    padded = torch.nn.functional.pad(vector.to(torch.float64), (0, len(signs) - len(vector)))
    return _by_blocks(padded * signs)


def unrotated(values: Tensor, size: int, draw: Draw) -> Tensor:
    """Return the vector (P,) float32 whose rotated blocks these are."""
    return (_by_blocks(values) * _signs(size, draw))[:size].to(torch.float32)


def hadamard(vectors: Tensor) -> Tensor:
    """Multiply vectors (…, n) by the orthonormal Hadamard matrix, its own inverse; n is a power of two.

    Sums and differences are taken in a fixed order, so that every machine has the same bits.
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


MOST_BITS = 8

_POSITIVE = """
0.797885

0.452780 1.510418

0.245094 0.756005 1.343909 2.151946

0.128395 0.388048 0.656759 0.942340 1.256231 1.618046 2.069017 2.732590

0.065890 0.198052 0.331378 0.466700 0.604934 0.747136 0.894565 1.048783 1.211804 1.386340 1.576228 1.787233 2.028728
2.317739 2.691120 3.260733

0.033410 0.100278 0.167297 0.234567 0.302193 0.370283 0.438950 0.508314 0.578503 0.649656 0.721922 0.795468 0.870477
0.947155 1.025736 1.106488 1.189720 1.275795 1.365141 1.458276 1.555831 1.658589 1.767542 1.883977 2.009611 2.146810
2.298981 2.471305 2.672274 2.917407 3.240437 3.744101

0.016828 0.050491 0.084173 0.117886 0.151645 0.185461 0.219348 0.253319 0.287388 0.321568 0.355874 0.390320 0.424922
0.459694 0.494652 0.529812 0.565193 0.600811 0.636684 0.672833 0.709278 0.746039 0.783140 0.820603 0.858454 0.896720
0.935429 0.974610 1.014297 1.054523 1.095327 1.136748 1.178829 1.221618 1.265165 1.309528 1.354766 1.400949 1.448149
1.496450 1.545944 1.596733 1.648934 1.702677 1.758112 1.815408 1.874763 1.936405 2.000602 2.067672 2.137994 2.212028
2.290339 2.373634 2.462812 2.559041 2.663887 2.779514 2.909047 3.057246 3.231933 3.447430 3.734937 4.189694

0.008446 0.025339 0.042235 0.059135 0.076040 0.092952 0.109874 0.126806 0.143750 0.160707 0.177681 0.194671 0.211680
0.228709 0.245761 0.262836 0.279937 0.297066 0.314223 0.331412 0.348633 0.365888 0.383180 0.400510 0.417881 0.435293
0.452750 0.470253 0.487804 0.505405 0.523059 0.540767 0.558531 0.576355 0.594240 0.612189 0.630203 0.648286 0.666440
0.684667 0.702971 0.721353 0.739817 0.758365 0.777001 0.795727 0.814547 0.833464 0.852480 0.871599 0.890826 0.910163
0.929613 0.949182 0.968873 0.988690 1.008637 1.028719 1.048940 1.069305 1.089819 1.110487 1.131314 1.152306 1.173469
1.194808 1.216331 1.238042 1.259951 1.282062 1.304385 1.326926 1.349694 1.372698 1.395947 1.419450 1.443217 1.467259
1.491588 1.516214 1.541150 1.566410 1.592008 1.617959 1.644277 1.670981 1.698088 1.725618 1.753590 1.782028 1.810954
1.840394 1.870376 1.900929 1.932085 1.963879 1.996349 2.029536 2.063486 2.098247 2.133875 2.170429 2.207976 2.246591
2.286355 2.327363 2.369718 2.413539 2.458963 2.506143 2.555260 2.606522 2.660175 2.716508 2.775871 2.838686 2.905473
2.976883 3.053743 3.137133 3.228501 3.329849 3.444072 3.575588 3.731667 3.925638 4.186596 4.603536
"""  # levels above zero, a paragraph for each number of bits; those below mirror them

_ERRORS = (1.0, 0.36338023, 0.11748185, 0.03454776, 0.00950101, 0.00250467, 0.00064424, 0.00016348, 0.00004119)


@cache
def levels(bits: int) -> np.ndarray:
    """Return the values of the symbols: the means of the cells between the edges."""
    positive = np.array(_POSITIVE.strip().split("\n\n")[bits - 1].split(), np.float64)
    return np.concatenate([-positive[::-1], positive])


@cache
def edges(bits: int) -> np.ndarray:
    """Return the midpoints of neighbouring levels."""
    return np.asarray((levels(bits)[1:] + levels(bits)[:-1]) / 2)


def error(bits: int) -> float:
    """Return the mean squared error of a quantiser with this many bits."""
    return _ERRORS[bits]


def quantised(ratios: NDArray[np.float64], bits: int) -> NDArray[np.uint8]:
    """Return the symbol of each value (n,) over its block's scale."""
    return np.searchsorted(edges(bits), ratios).astype(np.uint8)


def to_bits(symbols: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Return the bits of the symbols (n,), one after the other: (n * bits,)."""
    return np.unpackbits(symbols[:, None], axis=1)[:, -bits:].ravel()


def from_bits(raw: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Return the symbols (n,) whose bits (n * bits,) these are."""
    return np.right_shift(np.packbits(raw.reshape(-1, bits), axis=1).ravel(), np.uint8(8 - bits))


def of_values(scales: Tensor, size: int) -> NDArray[np.float64]:
    """Return the scale of each value's block, (sum of widths,), from those of the blocks of a vector of `size`."""
    return np.repeat(scales.to(torch.float64).numpy(), widths(size))
