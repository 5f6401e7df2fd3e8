"""Tensor data as bytes: row-major, little-endian on every host, booleans eight to a byte."""

import math

import numpy as np
import torch
from torch import Tensor

from refprotofl.wire.primitives import Reader, WireError, varint

# A type's position is its code on the wire: append only.
DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
)
# numpy has no bfloat16, so data are passed as integers of the same width: bits stay as they are.
_CARRIERS = {
    1: (torch.uint8, "<u1"),
    2: (torch.int16, "<i2"),
    4: (torch.int32, "<i4"),
    8: (torch.int64, "<i8"),
}
_MAX_ELEMENTS = 1 << 40  # empty dimensions left out, so that no shape overflows
_MAX_DIMENSIONS = 64  # torch computes with no more


def dtype_code(tensor: Tensor) -> int:
    """Return the code of the tensor's type."""
    if tensor.layout is not torch.strided:
        raise WireError(f"a tensor of layout {tensor.layout} cannot be sent; make it dense or a Sparse")
    if tensor.dtype not in DTYPES:
        raise WireError(f"a tensor of {tensor.dtype} cannot be sent; convert it to one of {DTYPES}")
    return DTYPES.index(tensor.dtype)


def shape_bytes(tensor: Tensor) -> bytes:
    """Encode the number of dimensions and each of them."""
    _check_shape(tuple(tensor.shape))
    return b"".join(map(varint, (tensor.dim(), *tensor.shape)))


def read_shape(reader: Reader) -> tuple[int, ...]:
    """Read a shape that `shape_bytes` encoded."""
    dimensions = reader.varint()
    if dimensions > _MAX_DIMENSIONS:
        raise WireError(f"malformed: a tensor of {dimensions} dimensions; the maximum is {_MAX_DIMENSIONS}")
    shape = tuple(reader.varint() for _ in range(dimensions))
    _check_shape(shape)
    return shape


def data_bytes(tensor: Tensor) -> bytes:
    """Encode the elements; every float must be finite."""
    tensor = tensor.detach().cpu().contiguous()
    check_finite(tensor)
    if tensor.dtype is torch.bool:
        return np.packbits(tensor.flatten().numpy()).tobytes()
    carrier, little_endian = _CARRIERS[tensor.itemsize]
    return tensor.view(carrier).numpy().astype(little_endian, copy=False).tobytes()


def read_data(reader: Reader, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Read elements that `data_bytes` encoded into new memory."""
    count = math.prod(shape)
    if dtype is torch.bool:
        return _read_bools(reader, count).reshape(shape)
    _, little_endian = _CARRIERS[dtype.itemsize]
    data = np.frombuffer(reader.take(count * dtype.itemsize), little_endian)
    tensor = torch.from_numpy(data.astype(data.dtype.newbyteorder("="))).view(dtype).reshape(shape)
    check_finite(tensor)
    return tensor


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Return True if type, shape and every bit agree: unlike for `torch.equal`, 0.0 is not -0.0."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    carrier, _ = _CARRIERS[left.itemsize]
    return torch.equal(left.contiguous().view(carrier), right.contiguous().view(carrier))


def _read_bools(reader: Reader, count: int) -> Tensor:
    bits = np.unpackbits(np.frombuffer(reader.take(-(-count // 8)), np.uint8))
    if bits[count:].any():
        raise WireError("malformed: padding that is not zero")
    return torch.from_numpy(bits[:count].astype(bool))


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) > _MAX_DIMENSIONS or math.prod(max(length, 1) for length in shape) > _MAX_ELEMENTS:
        raise WireError(f"a tensor of shape {shape} is too large to be sent")


def check_finite(tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        return
    # numpy is ten times as fast, but has no bfloat16 and is slow with float16.
    wide = tensor.dtype in (torch.float32, torch.float64)
    if not (np.isfinite(tensor.numpy()) if wide else torch.isfinite(tensor)).all():
        bad = int(torch.count_nonzero(~torch.isfinite(tensor)))
        raise WireError(f"{bad} of {tensor.numel()} values are NaN or infinite; every value must be finite")
