"""Values in an entropy code: every bit comes back, real ones are shorter, damage is found."""

from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.wire import Message, Sparse, WireError, decode, encode
from refprotofl.wire.primitives import Reader
from refprotofl.wire.tensors import same_bits
from refprotofl.wire.values import CODED, decode_values, encode_values, least_value_bits


def drawn(size: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    values = 0.05 * torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return (127 * values).round().to(dtype) if dtype is torch.int8 else values.to(dtype)


@settings(max_examples=40)
@given(data=st.binary(max_size=4000), dtype=st.sampled_from(CODED))
def test_any_bits_come_back(data: bytes, dtype: torch.dtype) -> None:
    """Infinities and NaN among them: the codec, not this code, refuses those."""
    whole = len(data) // 4 * 4
    values = torch.frombuffer(bytearray(data[:whole]), dtype=torch.uint8).view(dtype) if whole else drawn(0, dtype)
    code = encode_values(values)
    reader = Reader(code + b"rest")
    assert same_bits(decode_values(reader, dtype, len(values)), values)
    assert bytes(reader.peek()) == b"rest"


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 27), (torch.bfloat16, 11), (torch.int8, 5)])
def test_what_looks_like_weights_is_shorter_and_near_the_entropy(dtype: torch.dtype, most: float) -> None:
    values = drawn(50_000, dtype)
    bits = 8 * len(encode_values(values)) / len(values)
    assert least_value_bits(values) / len(values) <= bits < most
    assert bits < 1.02 * least_value_bits(values) / len(values)


@pytest.mark.parametrize("dtype", CODED)
def test_messages_say_the_same_in_fewer_bytes(dtype: torch.dtype) -> None:
    values = drawn(6000, dtype)
    places = torch.arange(0, 12_000, 2)
    message: Message = {"dense": values.view(60, 100), "few": values[:9]}
    message["sparse"] = Sparse(places, values, 12_000)
    coded = encode(message, "entropy")
    assert len(coded) < len(encode(message))
    back = decode(coded)
    dense, few = ValidatedMessage(back).tensor("dense"), ValidatedMessage(back).tensor("few")
    assert same_bits(dense.flatten(), values)
    assert same_bits(few, values[:9])
    assert ValidatedMessage(back).sparse("sparse") == Sparse(places, values, 12_000)


def test_what_would_be_longer_stays_as_it_is() -> None:
    noise = torch.randint(-(1 << 31), (1 << 31) - 1, (1000,), generator=torch.Generator().manual_seed(0))
    values = noise.to(torch.int32).view(torch.float32)
    message: Message = {"x": torch.where(torch.isfinite(values), values, 1.0)}
    assert encode(message, "entropy") == encode(message)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_refused_both_ways(value: float) -> None:
    values = drawn(1000, torch.float32)
    good = encode({"x": values}, "entropy")
    values[5] = value
    with pytest.raises(WireError, match="finite"):
        encode({"x": values}, "entropy")
    code = good[: good.index(encode_values(drawn(1000, torch.float32)))] + encode_values(values)
    with pytest.raises(WireError, match="finite"):
        decode(code)


@settings(max_examples=40)
@given(place=st.integers(3, 10_000), byte=st.integers(0, 255))
def test_damage_is_read_as_values_or_refused(place: int, byte: int) -> None:
    good = bytearray(encode({"x": drawn(2000, torch.int8), "y": drawn(500, torch.float16)}, "entropy"))
    good[place % len(good)] = byte
    with suppress(WireError):
        decode(bytes(good))


def test_more_values_than_bytes_could_hold_are_refused_before_they_are_made() -> None:
    with pytest.raises(WireError, match="announced"):
        decode_values(Reader(b"\x01" * 100), torch.int8, 1 << 40)
