"""The largest values of a vector and where they are, in a code of a given length: what a dense code is set against.

Values have a sign and three bits, in sevenths of their block's largest; where they are takes the index code.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.methods import apud
from refprotofl.methods.common.compressors import pack_pairs, unpack_pairs
from refprotofl.methods.common.fitting import largest_within
from refprotofl.methods.common.rotation import BLOCK, Coded
from refprotofl.wire.indices import decode_indices, encode_indices
from refprotofl.wire.reader import Reader

_LEVELS = 7


def encode_sparse(vector: Tensor, length: int) -> Coded:
    """As many of the largest values of the vector (P,) as `length` bytes hold."""
    blocks = functional.pad(vector.abs(), (0, -len(vector) % BLOCK)).view(-1, BLOCK)
    scales = blocks.amax(dim=1).to(torch.bfloat16)

    def written(keep: int) -> bytes:
        mask = apud.select(vector, torch.zeros_like(vector), keep)
        places = mask.nonzero().squeeze(1)
        reach = _reach(scales, places)
        signed = (vector[places] / reach.clamp(min=1e-30) * _LEVELS).round().clamp(-_LEVELS, _LEVELS)
        values = pack_pairs(signed.to(torch.int8)).numpy().tobytes()
        return encode_indices(places.numpy(), len(vector)) + values

    code = np.zeros(length, np.uint8)
    if len(written(1)) <= length:
        most = min(len(vector), 2 * length)
        found = written(largest_within(lambda keep: len(written(keep)), length, most, value_bytes=1))
        code[: len(found)] = np.frombuffer(found, np.uint8)
    return Coded(torch.from_numpy(code), scales)


def decode_sparse(coded: Coded, size: int) -> Tensor:
    """What the code says, (P,) float32; a code of zeros says nothing."""
    reader = Reader(coded.code.numpy().tobytes())
    places = torch.from_numpy(decode_indices(reader, size, most=2 * len(coded.code)))
    packed = np.frombuffer(reader.take(-(-len(places) // 2)), np.uint8).copy()
    signed = unpack_pairs(torch.from_numpy(packed), len(places)).to(torch.float32)
    return torch.zeros(size).index_copy(0, places, signed * _reach(coded.scales, places) / _LEVELS)


def _reach(scales: Tensor, places: Tensor) -> Tensor:
    return scales.to(torch.float32)[places // BLOCK]
