"""The IDX format of MNIST and Fashion-MNIST: a magic number, big-endian dimensions, then bytes."""

import struct

import numpy as np
from numpy.typing import NDArray

from refprotofl.errors import DataError

UNSIGNED_BYTE = 0x08


def parse_idx(content: bytes, dimensions: int, origin: str) -> NDArray[np.uint8]:
    """The array in an IDX file's (decompressed) content; `origin` names the file in errors."""
    magic = bytes((0, 0, UNSIGNED_BYTE, dimensions))
    if content[:4] != magic:
        raise DataError(
            f"{origin} is not an IDX file of {dimensions} dimensions: it starts with "
            f"{content[:4].hex() or 'nothing'}, not {magic.hex()}. Fetch the right file."
        )
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise DataError(f"{origin} is truncated within its header: fetch it again.")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    promised, present = int(np.prod(shape, dtype=object)), len(content) - header
    if present != promised:
        raise DataError(
            f"{origin} is truncated or corrupt: its header promises {promised:,} bytes of data, "
            f"{present:,} are there. Fetch it again."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
