"""Encoding of messages: flat mappings of names to tensors, sparse tensors and scalars.

    magic, version   (a byte each)
    entries          (varint: their number, 4096 at most)
    each entry:      name (length, UTF-8), type code (a byte), body
        dense tensor     0x00 + type: number of dimensions, dimensions, elements
        sparse tensor    0x10 + type: size, index code (indices.py), values (booleans one byte each)
        coded tensors    0x30 and 0x40 + type: the same with their values in an entropy code (values.py)
        int              0x20: zigzag varint       float  0x21: eight bytes
        text             0x22: length, UTF-8       false  0x23, true  0x24: no body

All lengths are varints, all numbers little-endian. `encode` writes a message in one way. `decode` accepts no other,
except for other codes of the same indices or values, which are longer for their sender alone. It takes at most 64 bytes
of memory per byte of a message, 320 where values are coded, plus 0.1 MB (tests/faults/test_damaged_bytes.py).
"""

import math
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from refprotofl.wire.indices import MAX_SIZE, decode_indices, encode_indices
from refprotofl.wire.primitives import Reader, WireError, text, varint
from refprotofl.wire.tensors import (
    DTYPES,
    check_finite,
    data_bytes,
    dtype_code,
    read_data,
    read_shape,
    same_bits,
    shape_bytes,
)
from refprotofl.wire.values import CODED, LEAST, MOST_A_BYTE, ValueCode, decode_values, encode_values


@dataclass(frozen=True, eq=False)
class Sparse:
    """Some coordinates of a vector of `size` elements, with their values."""

    indices: Tensor  # (marked,) int64, strictly ascending, each in [0, size)
    values: Tensor  # (marked,) of any type that a dense tensor may have
    size: int

    def __eq__(self, other: object) -> bool:
        """Return True if both hold the same bits."""
        if not isinstance(other, Sparse):
            return NotImplemented
        same_indices = self.size == other.size and same_bits(self.indices, other.indices)
        return same_indices and same_bits(self.values, other.values)


Value = Tensor | Sparse | int | float | str | bool
Message = dict[str, Value]


MAGIC = 0xF5  # never a first byte of UTF-8 text
VERSION = 1
MAX_FIELDS = 4096  # per message: a field costs its reader far more than the few bytes that it takes to send

_SPARSE, _INT, _FLOAT, _TEXT, _FALSE, _TRUE, _CODED = 0x10, 0x20, 0x21, 0x22, 0x23, 0x24, 0x30


def encode(message: Message, value_code: ValueCode = "plain") -> bytes:
    """Encode a message; equal messages give equal bytes. With "entropy", tensors are coded where that is shorter."""
    if not isinstance(message, dict):
        raise WireError(f"a message must be a dict, not {type(message).__name__}")
    _check_count(len(message))
    parts = [bytes([MAGIC, VERSION]), varint(len(message))]
    for name, value in message.items():
        if not isinstance(name, str):
            raise WireError(f"a field name must be a string, not {name!r:.60}")
        try:
            parts += [text(name), _value_bytes(value, value_code)]
        except WireError as problem:
            raise WireError(f"field {name!r:.60}: {problem}") from None
    return b"".join(parts)


def decode(data: bytes) -> Message:
    """Decode a message; raise WireError for anything but the output of `encode`."""
    if not isinstance(data, bytes):
        raise WireError(f"an encoded message must be bytes, not {type(data).__name__}")
    reader = Reader(data)
    if reader.byte() != MAGIC:
        raise WireError("malformed: these bytes are not a message")
    version = reader.byte()
    if version != VERSION:
        raise WireError(f"the message has version {version}; this program reads version {VERSION}")
    message: Message = {}
    count = reader.varint()
    _check_count(count)
    for _ in range(count):
        name = reader.text()
        if name in message:
            raise WireError(f"malformed: field {name!r:.60} occurs twice")
        try:
            message[name] = _read_value(reader)
        except WireError as problem:
            raise WireError(f"field {name!r:.60}: {problem}") from None
    if reader.left:
        raise WireError(f"malformed: {reader.left} bytes after the end of the message")
    return message


def _check_count(fields: int) -> None:
    if fields > MAX_FIELDS:
        raise WireError(f"the message has {fields} fields; the maximum is {MAX_FIELDS}")


def _value_bytes(value: Value, value_code: ValueCode) -> bytes:
    match value:
        case Tensor():
            kind = dtype_code(value)
            coded, data = _data(value, value_code)
            return bytes([coded + kind]) + shape_bytes(value) + data
        case Sparse():
            return _sparse_bytes(value, value_code)
        case bool():
            return bytes([_TRUE if value else _FALSE])
        case int():
            return bytes([_INT]) + _int_bytes(value)
        case float():
            return bytes([_FLOAT]) + struct.pack("<d", _finite(value))
        case str():
            return bytes([_TEXT]) + text(value)
        case _:
            raise WireError(f"a {type(value).__name__} cannot be sent; send a tensor, a Sparse or a scalar")


def _read_value(reader: Reader) -> Value:
    code = reader.byte()
    if code < len(DTYPES):
        return read_data(reader, DTYPES[code], read_shape(reader))
    if _SPARSE <= code < _SPARSE + len(DTYPES):
        return _read_sparse(reader, DTYPES[code - _SPARSE])
    if _CODED <= code < _CODED + len(DTYPES):
        shape = read_shape(reader)
        return _read_coded(reader, DTYPES[code - _CODED], math.prod(shape)).reshape(shape)
    if _CODED + _SPARSE <= code < _CODED + _SPARSE + len(DTYPES):
        return _read_sparse(reader, DTYPES[code - _CODED - _SPARSE], coded=True)
    if code == _INT:
        number = reader.varint()
        return -(number + 1) // 2 if number & 1 else number // 2
    if code == _FLOAT:
        return _finite(struct.unpack("<d", reader.take(8))[0])
    if code == _TEXT:
        return reader.text()
    if code in (_FALSE, _TRUE):
        return code == _TRUE
    raise WireError(f"malformed: unknown type code {code}")


def _data(values: Tensor, value_code: ValueCode) -> tuple[int, bytes]:
    """Return the offset of the type code and a tensor's data in the shorter form."""
    data = data_bytes(values)
    if value_code == "plain" or values.numel() < LEAST or values.dtype not in CODED:
        return 0, data
    coded = encode_values(values.detach().cpu().flatten())
    worth = len(coded) < len(data) and values.numel() <= MOST_A_BYTE * len(coded)
    return (_CODED, coded) if worth else (0, data)


def _read_coded(reader: Reader, dtype: torch.dtype, count: int) -> Tensor:
    if dtype not in CODED:
        raise WireError(f"malformed: coded values of {dtype}")
    values = decode_values(reader, dtype, count)
    check_finite(values)
    return values


def _sparse_bytes(sparse: Sparse, value_code: ValueCode) -> bytes:
    _check_sparse(sparse)
    indices = sparse.indices.detach().cpu().numpy()
    kind = _SPARSE + dtype_code(sparse.values)
    coded, data = _data(_unpacked(sparse.values), value_code)
    head = bytes([coded + kind]) + varint(sparse.size)
    return head + encode_indices(indices, sparse.size) + data


def _read_sparse(reader: Reader, dtype: torch.dtype, coded: bool = False) -> Sparse:
    size = reader.varint()
    _check_size(size)
    if coded:
        indices = decode_indices(reader, size, most=MOST_A_BYTE * reader.left)
        return Sparse(torch.from_numpy(indices), _read_coded(reader, dtype, indices.size), size)
    indices = decode_indices(reader, size, most=reader.left // dtype.itemsize)
    values = read_data(reader, torch.uint8 if dtype is torch.bool else dtype, (indices.size,))
    if dtype is torch.bool and bool((values > 1).any()):
        raise WireError("malformed: a boolean that is neither 0 nor 1")
    values = values.view(dtype)
    return Sparse(torch.from_numpy(indices), values, size)


def _unpacked(values: Tensor) -> Tensor:
    """Return booleans one per byte, so that the bytes of a message cover the memory of its indices."""
    return values.view(torch.uint8) if values.dtype is torch.bool else values


def _check_sparse(sparse: Sparse) -> None:
    indices, values = sparse.indices, sparse.values
    if not isinstance(indices, Tensor) or DTYPES[dtype_code(indices)] != torch.int64 or indices.dim() != 1:
        raise WireError("the indices of a Sparse must be a one-dimensional int64 tensor")
    if not isinstance(values, Tensor) or values.dim() != 1:
        raise WireError("the values of a Sparse must be a one-dimensional tensor")
    if len(indices) != len(values):
        raise WireError(f"a Sparse with {len(indices)} indices and {len(values)} values; they must match")
    _check_size(sparse.size)
    if len(indices) and (int(indices[0]) < 0 or int(indices[-1]) >= sparse.size):
        raise WireError(f"the indices of a Sparse of size {sparse.size} must be in [0, {sparse.size})")
    if not bool((indices[1:] > indices[:-1]).all()):
        raise WireError("the indices of a Sparse must be strictly ascending: sorted, none twice")


def _check_size(size: object) -> None:
    if type(size) is not int or not 0 <= size <= MAX_SIZE:
        raise WireError(f"the size of a Sparse must be a whole number from 0 to {MAX_SIZE}, not {size!r:.60}")


def _int_bytes(number: int) -> bytes:
    if not -(1 << 63) <= number < 1 << 63:
        raise WireError("an integer must fit into 64 bits, -2**63 to 2**63 - 1")
    return varint(2 * number if number >= 0 else -2 * number - 1)


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise WireError(f"the value is {number}; every value must be finite")
    return number
