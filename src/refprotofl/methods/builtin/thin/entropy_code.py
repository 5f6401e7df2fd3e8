"""Vectors in an entropy code: one step for all values, as small as the length allows, and frequent levels in few bits.

How weights move is far from Gaussian: few move much, and more in some rows than in others. So nothing is rotated, small
blocks of like size share their frequencies (wire/rans.py), and values round to zero from farther away than to any
other level, which saves more length than it costs in error. The levels next to zero stand for the mean of what was
rounded to them, which is sent: no number has to come out alike on two machines.

A symbol has 255 levels. Where the largest value needs none beyond them and bytes are left, the same is done with
what was rounded off.

    code      the classes of the blocks, then the levels of all values, as symbols; then zeros, or a second step and the
              levels of what was left over
    scales    the step, and the means
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.methods.builtin.thin.quantisation import Coded
from refprotofl.wire import Reader, WireError
from refprotofl.wire.rans import about_bytes, decode_symbols, encode_symbols, least_bytes

_MEANS = 3  # levels next to zero, on either side, whose means are sent
SCALES = 1 + _MEANS
_BLOCK = 256  # values that have a class in common
_CLASSES, _PER_OCTAVE = 8, 2  # how much smaller than the largest block: half a power of two each
_SHARE = 0.1  # of a code: more than that classes may not take, or there is one for all
_MIDDLE = 128  # the symbol of what is rounded to zero
_MOST = 127  # levels on either side of it
_SIGNED = np.clip(np.arange(256) - _MIDDLE, -_MOST, _MOST)  # the level of each symbol
_STEP_BYTES = 2  # of the step of a second code
_SPARED = 16  # bytes for the first levels that are not zero
_DEAD_ZONE = 0.15  # of a step: so much later values round away from zero, at a bit a value; the more bits, the less

Symbols = NDArray[np.uint8]


def least_entropy(size: int) -> int:
    """Return the bytes in which a code of any vector of `size` is not empty."""
    return least_bytes(_blocks(size), 1) + least_bytes(size, _CLASSES) + _SPARED


def encode_entropy(vector: Tensor, length: int) -> Coded:
    """Encode the vector (P,) in `length` bytes; as zeros if not even the coarsest step fits."""
    values = vector.to(torch.float64).numpy()
    written, scales = b"", torch.zeros(SCALES, dtype=torch.bfloat16)
    if values.any():
        header, contexts = _context(values, length)
        found = _finest(values, contexts, length, length - len(header))
        if found is not None:
            scales = torch.tensor([found.step, *_means(values, found.symbols, found.step)]).to(torch.bfloat16)
            written = header + found.written
            if found.is_all:
                rest = values - _levels(scales)[found.symbols]
                written += _second(rest, contexts, length, length - len(written), float(scales[0]))
    return Coded(torch.frombuffer(bytearray(written.ljust(length, b"\0")), dtype=torch.uint8), scales)


def decode_entropy(coded: Coded, size: int) -> Tensor:
    """Decode the vector (P,) float32; a step of zero means zeros."""
    if not coded.scales[0]:
        return torch.zeros(size)
    levels = _levels(coded.scales)
    reader = Reader(coded.code.numpy().tobytes())
    classes = decode_symbols(reader, np.zeros(_blocks(size), np.int64), 1)
    if classes.max() >= _CLASSES:
        raise WireError("malformed: unknown class")
    contexts = _contexts(classes, size)
    said = levels[decode_symbols(reader, contexts, _CLASSES)]
    finer = int.from_bytes(reader.take(_STEP_BYTES), "little") if reader.left >= _STEP_BYTES else 0
    if finer:
        if not _step(finer) <= float(coded.scales[0]):
            raise WireError("malformed: a second step that is not finer")
        said = said + _step(finer) * _SIGNED[decode_symbols(reader, contexts, _CLASSES)]
    if not np.abs(said).max() <= np.finfo(np.float32).max:
        raise WireError("malformed: levels that are no numbers")
    return torch.from_numpy(said).to(torch.float32)


def _levels(scales: Tensor) -> NDArray[np.float64]:
    """Return the level of each symbol, (256,)."""
    step, *means = scales.tolist()
    sizes = np.abs(_SIGNED) * step
    for level, mean in enumerate(means, 1):
        sizes[np.abs(_SIGNED) == level] = mean
    return np.asarray(np.sign(_SIGNED) * sizes)


@dataclass(frozen=True)
class _Found:
    step: float
    symbols: Symbols
    written: bytes
    is_all: bool  # no smaller step has levels enough


def _context(values: NDArray[np.float64], length: int) -> tuple[bytes, NDArray[np.int64]]:
    """Return the classes of the blocks as they are encoded, and the context of each value."""
    classes = _classes(values)
    header = _header(classes)
    if len(header) > _SHARE * length:
        classes = np.zeros_like(classes)
        header = _header(classes)
    return header, _contexts(classes, len(values))


def _second(rest: NDArray[np.float64], contexts: NDArray[np.int64], length: int, left: int, first: float) -> bytes:
    """Return the code of the `first` step's remainder in the remaining bytes; none if they allow no finer step."""
    found = _finest(rest, contexts, length, left - _STEP_BYTES) if rest.any() else None
    if found is None or found.step > first:
        return b""
    return _pattern(found.step).to_bytes(_STEP_BYTES, "little") + found.written


def _finest(values: NDArray[np.float64], contexts: NDArray[np.int64], length: int, left: int) -> _Found | None:
    """Return the smallest step whose code fits into what is `left` of the whole `length`.

    Steps are the positive floats of 16 bits, whose patterns are in their order.
    """
    most = float(np.abs(values).max())
    late = _DEAD_ZONE * min(1.0, len(values) / (8 * length))
    low, high = _pattern(most / _MOST), _pattern(2 * most) + 1
    least = low
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
            return _Found(_step(pattern), symbols, written, pattern == least)
    return None


def _header(classes: Symbols) -> bytes:
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
    """Return for each block how much smaller its values are than those of the largest."""
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
