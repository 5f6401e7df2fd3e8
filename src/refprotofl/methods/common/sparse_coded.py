"""The largest values of a vector and where they are, in a code of a given length: what a dense code is set against.

Values have a sign and three bits: one of eight magnitudes from the least that is sent to the largest, each as many
times the one before, so that a few very large ones do not make the others zeros. Where they are takes the index code.
"""

import numpy as np
import torch
from torch import Tensor

from refprotofl.methods import apud
from refprotofl.methods.common.fitting import largest_within
from refprotofl.methods.common.rotation import Coded
from refprotofl.wire.indices import decode_indices, encode_indices
from refprotofl.wire.reader import Reader

SCALES = 2  # the least magnitude and the largest
_MAGNITUDES = 8


def least_sparse(size: int) -> int:
    """Bytes of a code with one value of a vector of `size`."""
    return len(encode_indices(np.zeros(1, np.int64), size)) + 1


def encode_sparse(vector: Tensor, length: int) -> Coded:
    """As many of the largest values of the vector (P,) as `length` bytes hold."""
    code, scales = np.zeros(length, np.uint8), torch.zeros(SCALES, dtype=torch.bfloat16)
    most = min(int(vector.count_nonzero()), 2 * length)
    if most and len(_written(vector, 1)[0]) <= length:
        keep = largest_within(lambda keep: len(_written(vector, keep)[0]), length, most, value_bytes=1)
        found, scales = _written(vector, keep)
        code[: len(found)] = np.frombuffer(found, np.uint8)
    return Coded(torch.from_numpy(code), scales)


def decode_sparse(coded: Coded, size: int) -> Tensor:
    """What the code says, (P,) float32; a code of zeros says nothing."""
    reader = Reader(coded.code.numpy().tobytes())
    places = torch.from_numpy(decode_indices(reader, size, most=2 * len(coded.code)))
    packed = np.frombuffer(reader.take(-(-len(places) // 2)), np.uint8)
    symbols = torch.from_numpy(np.packbits(np.unpackbits(packed).reshape(-1, 4), axis=1).ravel() >> 4)[: len(places)]
    magnitudes = _magnitudes(coded.scales)[symbols.long() % _MAGNITUDES]
    return torch.zeros(size).index_copy(0, places, torch.where(symbols >= _MAGNITUDES, -magnitudes, magnitudes))


def _written(vector: Tensor, keep: int) -> tuple[bytes, Tensor]:
    """The code of the `keep` largest values, and the scales."""
    places = apud.select(vector, torch.zeros_like(vector), keep).nonzero().squeeze(1)
    sent = vector[places]
    scales = torch.stack([sent.abs().min(), sent.abs().max()]).to(torch.bfloat16)
    grid = _magnitudes(scales)
    symbols = torch.bucketize(sent.abs(), (grid[1:] + grid[:-1]) / 2) + _MAGNITUDES * (sent < 0)
    packed = np.packbits(np.unpackbits(symbols.to(torch.uint8).numpy()[:, None], axis=1)[:, 4:])
    return encode_indices(places.numpy(), len(vector)) + packed.tobytes(), scales


def _magnitudes(scales: Tensor) -> Tensor:
    least, largest = scales.to(torch.float64).clamp(min=1e-40).log().tolist()
    return torch.linspace(least, largest, _MAGNITUDES, dtype=torch.float64).exp().to(torch.float32)  # (8,)
