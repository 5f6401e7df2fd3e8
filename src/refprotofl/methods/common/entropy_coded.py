"""Vectors in an entropy code: one step for all values, as small as the length allows, and frequent levels in few bits.

How weights move is far from Gaussian: few move much, and more in some rows than in others. So nothing is rotated, small
blocks of like size share their frequencies (wire/symbols.py), and values round to zero from farther away than to any
other level, which saves more length than it costs in error. The levels next to zero stand for the mean of what was
rounded to them, which is sent: no number has to come out alike on two machines.

    code      the classes of the blocks, then the levels of all values, as symbols
    scales    the step, and the means
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.methods.common.rotation import Coded
from refprotofl.wire.error import WireError
from refprotofl.wire.reader import Reader
from refprotofl.wire.symbols import about_bytes, decode_symbols, encode_symbols, least_bytes

_MEANS = 3  # levels next to zero, on either side, whose means are sent
SCALES = 1 + _MEANS
_BLOCK = 256  # values that have a class in common
_CLASSES, _PER_OCTAVE = 8, 2  # how much smaller than the largest block: half a power of two each
_SHARE = 0.1  # of a code: more than that classes may not take, or there is one for all
_MIDDLE = 128  # the symbol of what is rounded to zero
_MOST = 127  # levels on either side of it
_DEAD_ZONE = 0.15  # of a step: so much later values round away from zero, at a bit a value; the more bits, the less

Symbols = NDArray[np.uint8]


def least_entropy(size: int) -> int:
    """Bytes that no code of a vector of `size` is shorter than, if it is to say anything."""
    return least_bytes(_blocks(size), 1) + least_bytes(size, _CLASSES) + 1


def encode_entropy(vector: Tensor, length: int) -> Coded:
    """The vector (P,) in a code of `length` bytes; zeros if not even the coarsest fits."""
    values = vector.to(torch.float64).numpy()
    code, scales = np.zeros(length, np.uint8), torch.zeros(SCALES, dtype=torch.bfloat16)
    found = _finest(values, length) if values.any() else None
    if found is not None:
        step, symbols, written = found
        code[: len(written)] = np.frombuffer(written, np.uint8)
        scales = torch.tensor([step, *_means(values, symbols, step)]).to(torch.bfloat16)
    return Coded(torch.from_numpy(code), scales)


def decode_entropy(coded: Coded, size: int) -> Tensor:
    """What the code says, (P,) float32; a step of zero says nothing."""
    step, *means = coded.scales.tolist()
    if not step:
        return torch.zeros(size)
    levels = np.arange(_MOST + 1) * step
    levels[1 : 1 + _MEANS] = means
    if not levels.max() <= np.finfo(np.float32).max:
        raise WireError("malformed: levels that are no numbers")
    reader = Reader(coded.code.numpy().tobytes())
    classes = decode_symbols(reader, np.zeros(_blocks(size), np.int64), 1)
    if classes.max() >= _CLASSES:
        raise WireError("malformed: a class that there is not")
    symbols = decode_symbols(reader, _contexts(classes, size), _CLASSES).astype(np.int64) - _MIDDLE
    return torch.from_numpy(np.sign(symbols) * levels[np.minimum(np.abs(symbols), _MOST)]).to(torch.float32)


def _finest(values: NDArray[np.float64], length: int) -> tuple[float, Symbols, bytes] | None:
    """The smallest step whose code fits into `length` bytes, the symbols, and that code.

    Steps are the positive floats of 16 bits, whose patterns are in their order.
    """
    classes = _classes(values)
    told = _told(classes)
    if len(told) > _SHARE * length:
        classes = np.zeros_like(classes)
        told = _told(classes)
    contexts = _contexts(classes, len(values))
    most, left = float(np.abs(values).max()), length - len(told)
    late = _DEAD_ZONE * min(1.0, len(values) / (8 * length))
    low, high = _pattern(most / _MOST), _pattern(2 * most) + 1
    while low < high:
        middle = (low + high) // 2
        if about_bytes(_rounded(values, _step(middle), late), contexts, _CLASSES) <= left:
            high = middle
        else:
            low = middle + 1
    for pattern in range(low, _pattern(2 * most) + 2):
        symbols = _rounded(values, _step(pattern), late)
        written = encode_symbols(symbols, contexts, _CLASSES)
        if len(written) <= left:
            return _step(pattern), symbols, told + written
    return None


def _told(classes: Symbols) -> bytes:
    return encode_symbols(classes, np.zeros(len(classes), np.int64), 1)


def _rounded(values: NDArray[np.float64], step: float, late: float) -> Symbols:
    levels = np.minimum(np.floor(np.abs(values) / step + 0.5 - late), _MOST)
    return (np.copysign(levels, values) + _MIDDLE).astype(np.uint8)


def _means(values: NDArray[np.float64], symbols: Symbols, step: float) -> list[float]:
    sizes, levels = np.abs(values), np.abs(symbols.astype(np.int64) - _MIDDLE)
    chosen = [sizes[levels == level] for level in range(1, 1 + _MEANS)]
    return [float(some.mean()) if len(some) else level * step for level, some in enumerate(chosen, 1)]


def _blocks(size: int) -> int:
    return -(-size // _BLOCK)


def _classes(values: NDArray[np.float64]) -> Symbols:
    """Of each block: how much smaller its values are than those of the largest."""
    padded = np.pad(np.abs(values), (0, -len(values) % _BLOCK))
    sizes = padded.reshape(-1, _BLOCK).mean(axis=1)
    smaller = _PER_OCTAVE * np.log2(sizes.max() / np.maximum(sizes, sizes.max() * 2.0**-64))
    return np.asarray(np.minimum(np.rint(smaller), _CLASSES - 1)).astype(np.uint8)


def _contexts(classes: Symbols, size: int) -> NDArray[np.int64]:
    return np.repeat(classes.astype(np.int64), _BLOCK)[:size]


def _pattern(step: float) -> int:
    return max(1, int(torch.tensor(step).to(torch.bfloat16).view(torch.int16)))


def _step(pattern: int) -> float:
    return float(torch.tensor(pattern & 0x7FFF, dtype=torch.int16).view(torch.bfloat16))
