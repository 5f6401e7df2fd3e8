"""The largest values of a vector and their indices in a code of a given length: the baseline of the dense codes.

Values have a sign and one of eight magnitudes up to the largest, in a geometric progression, so that a few very large
values do not make zeros of the others; more magnitudes where the length has bits for them. The index code holds the
indices.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from refprotofl.methods import apud
from refprotofl.methods.builtin.thin.quantisation import Coded
from refprotofl.wire import Reader, decode_indices, encode_indices, largest_within

SCALES = 2  # the least magnitude and the largest
_LEAST_BITS, _MOST_BITS = 4, 8  # of a value, its sign among them
_SHARES = (1.0, 0.9, 0.75, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05)  # of the values that fit, which may do better


def least_sparse(size: int) -> int:
    """Return the bytes of a code with one value of a vector of `size`, wherever it is."""
    return max(len(encode_indices(np.array([index]), size)) for index in (0, size // 2, size - 1)) + 1


def encode_sparse(vector: Tensor, length: int) -> Coded:
    """Encode as many of the largest values of the vector (P,) as `length` bytes hold."""
    code, scales = np.zeros(length, np.uint8), torch.zeros(SCALES, dtype=torch.bfloat16)
    bits = _value_bits(length, len(vector))
    most = min(int(vector.count_nonzero()), 8 * length // bits)
    if most and _length(vector, bits, 1) <= length:
        keep = largest_within(partial(_length, vector, bits), length, most, value_bytes=1)
        found, scales = _written(vector, bits, keep)
        code[: len(found)] = np.frombuffer(found, np.uint8)
    return Coded(torch.from_numpy(code), scales)


def decode_sparse(coded: Coded, size: int) -> Tensor:
    """Decode a vector (P,) float32; a code of zeros is all zeros."""
    reader, bits = Reader(coded.code.numpy().tobytes()), _value_bits(len(coded.code), size)
    indices = torch.from_numpy(decode_indices(reader, size, most=8 * len(coded.code) // bits))
    packed = np.frombuffer(reader.take(_packed_bytes(len(indices), bits)), np.uint8)
    rows = np.unpackbits(packed)[: len(indices) * bits].reshape(-1, bits)
    symbols = torch.from_numpy(np.packbits(rows, axis=1).ravel() >> (8 - bits))
    grid = _magnitudes(coded.scales, bits)
    magnitudes = grid[symbols.long() % len(grid)]
    return torch.zeros(size).index_copy(0, indices, torch.where(symbols >= len(grid), -magnitudes, magnitudes))


def _value_bits(length: int, size: int) -> int:
    """Return the bits per value in a code of `length` bytes: where all values get four, more go into magnitudes."""
    return min(max(_LEAST_BITS, 8 * length // size), _MOST_BITS)


def _packed_bytes(values: int, bits: int) -> int:
    return -(-values * bits // 8)


def _largest(vector: Tensor, keep: int) -> Tensor:
    return apud.select(vector, torch.zeros_like(vector), keep).nonzero().squeeze(1)


def _length(vector: Tensor, bits: int, keep: int) -> int:
    """Return the length of the code of the `keep` largest values."""
    return len(encode_indices(_largest(vector, keep).numpy(), len(vector))) + _packed_bytes(keep, bits)


def _written(vector: Tensor, bits: int, most: int) -> tuple[bytes, Tensor]:
    """Return the code of up to `most` largest values, and the scales; of fewer, if coarser magnitudes err more."""
    ordered = vector.abs().sort(descending=True).values
    keep = min((max(1, int(share * most)) for share in _SHARES), key=lambda keep: _error(ordered, bits, keep))
    indices = _largest(vector, keep)
    sent, scales = vector[indices], _scales(ordered, keep)
    grid = _magnitudes(scales, bits)
    symbols = (_levels(sent.abs(), grid) + len(grid) * (sent < 0)).to(torch.uint8).numpy()
    packed = np.packbits(np.unpackbits(symbols[:, None], axis=1)[:, 8 - bits :])
    return encode_indices(indices.numpy(), len(vector)) + packed.tobytes(), scales


def _error(ordered: Tensor, bits: int, keep: int) -> float:
    """Return the squared error if the first `keep` of falling magnitudes (P,) are quantised and the others dropped."""
    grid = _magnitudes(_scales(ordered, keep), bits)
    said = grid[_levels(ordered[:keep], grid)]
    return float((said - ordered[:keep]).double().square().sum() + ordered[keep:].double().square().sum())


def _scales(ordered: Tensor, keep: int) -> Tensor:
    return torch.stack([ordered[keep - 1], ordered[0]]).to(torch.bfloat16)


def _levels(values: Tensor, grid: Tensor) -> Tensor:
    return torch.bucketize(values, (grid[1:] + grid[:-1]) / 2)


def _magnitudes(scales: Tensor, bits: int) -> Tensor:
    """Return the magnitudes of the levels, (2^(bits - 1),); the other levels are their negatives."""
    least, largest = scales.to(torch.float64).clamp(min=1e-40).log().tolist()
    return torch.linspace(least, largest, 2 ** (bits - 1), dtype=torch.float64).exp().to(torch.float32)
