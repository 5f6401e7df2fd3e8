"""The lossless code of values: exponents, signs and the first bits of mantissas near their entropy.

For int8 the whole byte is a symbol. A tensor of floats is coded as:

    bits              (a byte: the number of first bits of the mantissa that are coded with the sign)
    exponents         (rans.py)
    signs and these   (rans.py, in the context of the exponent: values chosen by size crowd at its lower end)
    the other bits    (uncoded: they are noise)
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refprotofl.wire.primitives import BitReader, Reader, WireError, bit_fields
from refprotofl.wire.rans import decode_symbols, encode_symbols, least_code_bits

ValueCode = Literal["plain", "entropy"]

LEAST = 256  # values; for fewer the tables cost more than they save
MOST_A_BYTE = 4  # values per byte of the code: this bounds the memory and time of decoding by the message's length

_CONTEXTS = 8
_A_LANE = 1024  # symbols: compared with the floats, a lane's state is small
_FIRST_BITS = (0, 3, 5)


@dataclass(frozen=True)
class _Form:
    carrier: torch.dtype
    unsigned: str
    mantissa: int  # bits
    exponent: int


_FORMS = {
    torch.float32: _Form(torch.int32, "<u4", 23, 8),
    torch.float16: _Form(torch.int16, "<u2", 10, 5),
    torch.bfloat16: _Form(torch.int16, "<u2", 7, 8),
}
CODED = (*_FORMS, torch.int8)

Integers = NDArray[np.int64]


def encode_values(values: Tensor) -> bytes:
    """Encode values (n,) of a type in `CODED`."""
    if values.dtype is torch.int8:
        return encode_symbols(values.numpy().view(np.uint8), np.zeros(len(values), np.int64), 1, _A_LANE)
    form = _FORMS[values.dtype]
    bits = values.contiguous().view(form.carrier).numpy().view(form.unsigned).astype(np.int64)
    exponents = bits >> form.mantissa & ((1 << form.exponent) - 1)
    contexts = _contexts(exponents)
    first = min(_FIRST_BITS, key=lambda count: _about_bits(bits, contexts, form, count))
    heads, rest = _split(bits, form, first)
    raw = np.packbits(bit_fields(rest, np.full_like(rest, form.mantissa - first)))
    none = np.zeros_like(contexts)
    coded = encode_symbols(exponents.astype(np.uint8), none, 1, _A_LANE)
    return bytes([first]) + coded + encode_symbols(heads, contexts, _CONTEXTS, _A_LANE) + raw.tobytes()


def decode_values(reader: Reader, dtype: torch.dtype, count: int) -> Tensor:
    """Decode `count` values."""
    if count > MOST_A_BYTE * reader.left:
        raise WireError(f"truncated: {count} values announced, {reader.left} bytes are left")
    none = np.zeros(count, np.int64)
    if dtype is torch.int8:
        return torch.from_numpy(decode_symbols(reader, none, 1, _A_LANE).view(np.int8).copy())
    form, first = _FORMS[dtype], reader.byte()
    if first not in _FIRST_BITS:
        raise WireError(f"malformed: {first} first bits")
    exponents = decode_symbols(reader, none, 1, _A_LANE).astype(np.int64)
    heads = decode_symbols(reader, _contexts(exponents), _CONTEXTS, _A_LANE).astype(np.int64)
    if (exponents >> form.exponent).any() or (heads >> (first + 1)).any():
        raise WireError("malformed: a symbol that no value has")
    raw = BitReader(reader.peek())
    rest = raw.fields(np.full(count, form.mantissa - first, np.int64))
    reader.take(raw.bytes_read)
    signs, tops = heads >> first, heads & ((1 << first) - 1)
    low = form.mantissa - first
    bits = signs << (form.mantissa + form.exponent) | exponents << form.mantissa | tops << low | rest
    return torch.from_numpy(bits.astype(form.unsigned).view(form.unsigned.replace("u", "i"))).view(dtype)


def _contexts(exponents: Integers) -> Integers:
    """Return the context of each value: the distance of its exponent below the largest."""
    return np.asarray(np.minimum(exponents.max(initial=0) - exponents, _CONTEXTS - 1))


def _split(bits: Integers, form: _Form, first: int) -> tuple[NDArray[np.uint8], Integers]:
    """Return sign and first bits of the mantissa as symbols, and its other bits."""
    low = form.mantissa - first
    signs = bits >> (form.mantissa + form.exponent)
    tops = bits >> low & ((1 << first) - 1)
    return (signs << first | tops).astype(np.uint8), bits & ((1 << low) - 1)


def _about_bits(bits: Integers, contexts: Integers, form: _Form, first: int) -> float:
    heads, _ = _split(bits, form, first)
    tables = 8 * _CONTEXTS * 1.5 * (2 << first)
    return least_code_bits(heads, contexts, _CONTEXTS) + tables + (form.mantissa - first) * len(bits)


def least_value_bits(values: Tensor) -> float:
    """Return the entropy of the symbols plus the uncoded bits, for all values (n,) together."""
    if values.dtype is torch.int8:
        return least_code_bits(values.numpy().view(np.uint8), np.zeros(len(values), np.int64), 1)
    form = _FORMS[values.dtype]
    bits = values.contiguous().view(form.carrier).numpy().view(form.unsigned).astype(np.int64)
    exponents = (bits >> form.mantissa & ((1 << form.exponent) - 1)).astype(np.int64)
    heads, _ = _split(bits, form, _FIRST_BITS[-1])
    of_exponents = least_code_bits(exponents.astype(np.uint8), np.zeros_like(exponents), 1)
    of_heads = least_code_bits(heads, _contexts(exponents), _CONTEXTS)
    return of_exponents + of_heads + (form.mantissa - _FIRST_BITS[-1]) * len(bits)
