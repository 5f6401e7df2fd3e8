"""Messages survive the wire bit for bit, and two of them are computed by hand."""

import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.core.errors import RefProtoFLError
from refprotofl.wire import Message, Sparse, WireError, decode, encode
from refprotofl.wire.tensors import DTYPES, same_bits

finite_floats = st.floats(allow_nan=False, allow_infinity=False)
dtypes = st.sampled_from(DTYPES)


def tensor_of(raw: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor whose bits are those of `raw`; what is not finite becomes -0.0."""
    if dtype is torch.bool:
        return (torch.frombuffer(bytearray(raw), dtype=torch.uint8) % 2).bool().reshape(shape)
    tensor = torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
    if dtype.is_floating_point:
        tensor = torch.where(torch.isfinite(tensor), tensor, torch.tensor(-0.0, dtype=dtype))
    return tensor


@st.composite
def tensors(draw: st.DrawFn, count: int | None = None) -> torch.Tensor:
    dtype = draw(dtypes)
    shape = (count,) if count is not None else tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    length = int(np.prod(shape, dtype=int)) * dtype.itemsize
    if length == 0:
        return torch.empty(shape, dtype=dtype)
    return tensor_of(draw(st.binary(min_size=length, max_size=length)), dtype, shape)


@st.composite
def sparses(draw: st.DrawFn) -> Sparse:
    size = draw(st.integers(0, 300) | st.integers(0, 1 << 40))
    indices = sorted(draw(st.sets(st.integers(0, size - 1), max_size=60))) if size else []
    return Sparse(torch.tensor(indices, dtype=torch.int64), draw(tensors(len(indices))), size)


values = tensors() | sparses() | st.integers(-(1 << 63), (1 << 63) - 1) | finite_floats | st.text() | st.booleans()
messages = st.dictionaries(st.text(max_size=8), values, max_size=5)


def tensor(value: object) -> torch.Tensor:
    assert isinstance(value, torch.Tensor)
    return value


def sent_sparsely(value: object) -> Sparse:
    assert isinstance(value, Sparse)
    return value


def identical(left: Message, right: Message) -> bool:
    """Same names in the same order, same types, same bits."""
    if list(left) != list(right):
        return False
    for one, other in zip(left.values(), right.values(), strict=True):
        if type(one) is not type(other):
            return False
        if isinstance(one, torch.Tensor):
            same = same_bits(one, tensor(other))
        elif isinstance(one, float):
            same = struct.pack("<d", one) == struct.pack("<d", other)
        else:
            same = one == other
        if not same:
            return False
    return True


@given(messages)
@settings(max_examples=300)
def test_a_message_survives_bit_for_bit(message: Message) -> None:
    data = encode(message)
    assert identical(decode(data), message)
    assert encode(message) == data


def test_every_type_survives_with_its_negative_zero() -> None:
    message: Message = {str(dtype): torch.tensor([-0.0, 1.0]).to(dtype) for dtype in DTYPES}
    assert identical(decode(encode(message)), message)
    assert torch.signbit(tensor(decode(encode(message))["torch.bfloat16"])[0])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1 << 39, 0), (1,) * 64])
def test_unusual_shapes_survive(shape: tuple[int, ...]) -> None:
    assert tensor(decode(encode({"x": torch.zeros(shape)}))["x"]).shape == shape


def test_a_view_is_sent_as_its_own_elements() -> None:
    transposed = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    assert torch.equal(tensor(decode(encode({"x": transposed}))["x"]), transposed)


def test_bool_and_int_stay_apart() -> None:
    decoded = decode(encode({"a": True, "b": 1, "c": False, "d": 0}))
    assert [type(value) for value in decoded.values()] == [bool, int, bool, int]


def test_bytes_of_a_dense_message_by_hand() -> None:
    message: Message = {"a": torch.tensor([1.0, -0.0]), "n": -3, "ok": True}
    expected = (
        "f5 01 03"  # magic, version, three entries
        "01 61 00 01 02 0000803f 00000080"  # "a": float32, one dimension of 2, 1.0 and -0.0
        "01 6e 20 05"  # "n": an int, zigzag of -3
        "02 6f6b 24"  # "ok": true
    )
    assert encode(message) == bytes.fromhex(expected)


def test_bytes_of_a_sparse_message_by_hand() -> None:
    # Indices 1 and 5 of 8: Golomb's parameter is 2, the gaps 1 and 3 have remainders 1, 1 and quotients 0, 1:
    # bits 1 1, then 1 and 01, padded to 11101000.
    message: Message = {"s": Sparse(torch.tensor([1, 5]), torch.tensor([7, -1], dtype=torch.int8), 8)}
    assert encode(message) == bytes.fromhex("f5 01 01  01 73 14  08 02 00 e8  07 ff")


def test_sparse_equality_is_by_bits() -> None:
    zero = Sparse(torch.tensor([2]), torch.tensor([0.0]), 4)
    assert zero == Sparse(torch.tensor([2]), torch.tensor([0.0]), 4)
    assert zero != Sparse(torch.tensor([2]), torch.tensor([-0.0]), 4)
    assert zero != Sparse(torch.tensor([2]), torch.tensor([0.0]), 5)


def test_decoded_tensors_own_their_memory() -> None:
    data = encode({"x": torch.ones(3), "s": Sparse(torch.tensor([1]), torch.ones(1), 3)})
    first = decode(data)
    tensor(first["x"]).zero_()
    sent_sparsely(first["s"]).values.zero_()
    assert torch.equal(tensor(decode(data)["x"]), torch.ones(3))
    assert torch.equal(sent_sparsely(decode(data)["s"]).values, torch.ones(1))


def test_a_wire_error_is_one_of_ours() -> None:
    assert issubclass(WireError, RefProtoFLError)


def sparse(indices: list[int], values: list[float], size: int) -> Sparse:
    return Sparse(torch.tensor(indices, dtype=torch.int64), torch.tensor(values), size)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (sparse([2, 1], [1.0, 1.0], 4), "strictly ascending"),
        (sparse([1, 1], [1.0, 1.0], 4), "strictly ascending"),
        (sparse([1, 4], [1.0, 1.0], 4), r"must be in \[0, 4\)"),
        (sparse([-1, 2], [1.0, 1.0], 4), r"must be in \[0, 4\)"),
        (sparse([1, 2], [1.0], 4), "2 indices and 1 values"),
        (sparse([], [], -1), "size of a Sparse"),
        (sparse([], [], (1 << 40) + 1), "size of a Sparse"),
        (Sparse(torch.tensor([1], dtype=torch.int32), torch.ones(1), 4), "int64"),
        (Sparse(torch.tensor([[1]]), torch.ones(1), 4), "one-dimensional"),
        (Sparse(torch.tensor([1]), torch.ones(1, 1), 4), "one-dimensional"),
        (Sparse(torch.tensor([1]), torch.tensor([float("nan")]), 4), "NaN or infinite"),
        (torch.tensor([1.0, float("inf")], dtype=torch.float16), "1 of 2 values are NaN or infinite"),
        (torch.tensor([float("nan")], dtype=torch.bfloat16), "NaN or infinite"),
        (torch.zeros(2, dtype=torch.complex64), "complex64 cannot be sent"),
        (torch.zeros(2, 2).to_sparse(), "layout"),
        (torch.empty((1 << 41, 0)), "too large"),
        (float("-inf"), "finite"),
        (1 << 63, "64 bits"),
        (-(1 << 63) - 1, "64 bits"),
        ("\ud800", "UTF-8"),
        (None, "NoneType cannot be sent"),
        ([1, 2], "list cannot be sent"),
    ],
)
def test_encode_names_the_field_and_the_fault(value: object, sentence: str) -> None:
    with pytest.raises(WireError, match=f"field 'weights': .*{sentence}"):
        encode({"fine": 1, "weights": value})  # type: ignore[dict-item]


def test_encode_refuses_what_is_no_message() -> None:
    with pytest.raises(WireError, match="a dict, not list"):
        encode([1])  # type: ignore[arg-type]
    with pytest.raises(WireError, match="a string, not 3"):
        encode({3: 1})  # type: ignore[dict-item]
    with pytest.raises(WireError, match="must be bytes, not str"):
        decode("text")  # type: ignore[arg-type]
