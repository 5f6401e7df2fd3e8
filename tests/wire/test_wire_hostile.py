"""Bytes that are no message are refused: in a sentence, and before they cost memory."""

import struct
import tracemalloc

import numpy as np
import pytest
import torch

from refprotofl.wire import Message, Sparse, WireError, decode, encode
from refprotofl.wire.primitives import varint


def entry(body: bytes) -> bytes:
    """A message with the one field "x"."""
    return b"\xf5\x01\x01\x01x" + body


def sparse_entry(code: bytes, size: int = 8, values: bytes = b"\x01\x02") -> bytes:
    """A message with the one field "x", a Sparse of int8 values."""
    return entry(b"\x14" + varint(size) + code + values)


NAN32 = struct.pack("<f", float("nan"))
GRID = varint(2048)

MALFORMED = {
    "no bytes": (b"", "truncated"),
    "not a message": (b"\x80\x04\x95", "not a message"),
    "another version": (b"\xf5\x02\x00", "version 2"),
    "bytes after the end": (b"\xf5\x01\x00\x00", "1 bytes after the end"),
    "an entry too few": (b"\xf5\x01\x01", "truncated"),
    "a name twice": (b"\xf5\x01\x02\x01x\x23\x01x\x23", "'x' occurs twice"),
    "a name not in UTF-8": (b"\xf5\x01\x01\x01\xff\x23", "not UTF-8"),
    "a name longer than the message": (b"\xf5\x01\x01" + varint(1 << 62), "truncated"),
    "a text not in UTF-8": (entry(b"\x22\x02\xc3\x28"), "not UTF-8"),
    "an unknown type": (entry(b"\x0a"), "unknown type code 10"),
    "an unknown sparse type": (entry(b"\x1a"), "unknown type code 26"),
    "a padded integer": (entry(b"\x20\x80\x00"), "too long or padded"),
    "an integer beyond 64 bits": (entry(b"\x20" + b"\xff" * 9 + b"\x02"), "too long or padded"),
    "an endless integer": (entry(b"\x20" + b"\x80" * 30), "too long or padded"),
    "a float that is not finite": (entry(b"\x21" + struct.pack("<d", float("inf"))), "finite"),
    "a float cut short": (entry(b"\x21\x00"), "truncated"),
    "a tensor with NaN": (entry(b"\x00\x01\x01" + NAN32), "1 of 1 values are NaN or infinite"),
    "a half-precision infinity": (entry(b"\x01\x00\x00\x7c"), "NaN or infinite"),
    "a bfloat16 infinity": (entry(b"\x02\x00\x80\x7f"), "NaN or infinite"),
    "a tensor larger than its data": (entry(b"\x00\x01\x02" + bytes(7)), "truncated"),
    "a tensor of too many dimensions": (entry(b"\x00\x41" + b"\x01" * 65 + bytes(4)), "65 dimensions"),
    "a shape that overflows": (entry(b"\x00\x03" + 2 * varint(1 << 62) + b"\x00"), "too large"),
    "padding in packed booleans": (entry(b"\x09\x01\x03\xff"), "padding"),
    "a boolean of two": (entry(b"\x19\x08\x02\x00\xe8\x01\x02"), "neither 0 nor 1"),
    "a sparse size beyond the limit": (sparse_entry(b"\x00", size=(1 << 40) + 1), "size of a Sparse"),
    "more indices than coordinates": (
        sparse_entry(b"\x09\x00", values=bytes(9)),
        "9 indices in a tensor of 8",
    ),
    "more indices than values": (sparse_entry(b"\x05\x00"), "bytes for 4 values"),
    "fewer values than indices": (sparse_entry(b"\x02\x00\xe8", values=b"\x01"), "truncated"),
    "a sparse NaN": (entry(b"\x10\x08\x08" + 7 * bytes(4) + NAN32), "NaN or infinite"),
    "an unknown index code": (sparse_entry(b"\x02\x10\xe8"), "unknown index code 16"),
    "padding in the index code": (sparse_entry(b"\x02\x00\xe9"), "bits after the end"),
    "an index code cut short": (sparse_entry(b"\x02\x00", values=b""), "truncated"),
    "an index code without its ones": (sparse_entry(b"\x02\x00\x00"), "ends early"),
    "an index beyond the end": (sparse_entry(b"\x02\x00\xc9\x00"), "outside of the tensor"),
    "a grid for two indices": (
        sparse_entry(b"\x02\x05" + GRID, size=4096, values=bytes(64)),
        "a grid of width",
    ),
    "a grid of no width": (sparse_entry(b"\x02\x05\x00", values=bytes(64)), "a grid of width 0"),
    "counts that do not add up": (sparse_entry(b"\x04\x05\x02", values=bytes(64)), "do not add up"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_bytes_are_refused_with_a_reason(name: str) -> None:
    data, sentence = MALFORMED[name]
    with pytest.raises(WireError, match=sentence):
        decode(data)


def claims() -> list[bytes]:
    """Short messages that claim to be huge."""
    huge = varint(1 << 40)
    return [
        b"\xf5\x01" + varint((1 << 64) - 1),
        entry(b"\x22" + varint(1 << 63)),
        entry(b"\x00\x01" + huge),
        entry(b"\x09\x02" + varint(1 << 20) + varint(1 << 20)),
        sparse_entry(varint(1 << 39) + b"\x00", 1 << 40, bytes(20)),
        sparse_entry(huge, 1 << 40, bytes(20)),
        sparse_entry(varint((1 << 40) - 1) + b"\x00", 1 << 40, bytes(20)),
        sparse_entry(b"\x10\x00", 1 << 40, b"\xff" * 40),
        sparse_entry(b"\x10\x0f" + varint(1 << 20), 1 << 40, bytes(40)),
        sparse_entry(b"\x14\x04" + b"\x01", 1 << 40, bytes(40)),
        sparse_entry(b"\x14\x01" + varint((1 << 40) - 1), 1 << 40, bytes(40)),
    ]


@pytest.mark.parametrize("data", claims(), ids=bytes.hex)
def test_a_short_message_cannot_claim_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_memory_follows_the_bytes_of_the_message() -> None:
    size = 1 << 16
    data = encode({"x": Sparse(torch.arange(size), torch.zeros(size, dtype=torch.int8), 1 << 30)})
    tracemalloc.start()
    try:
        decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300 * len(data)


def clustered(seed: int, rows: int, width: int, tail: int) -> np.ndarray:
    """Indices as an update has them: some rows and columns busy, and most of a tail."""
    generator = np.random.default_rng(seed)
    chance = np.outer(generator.random(rows) ** 4, generator.random(width) ** 4)
    return np.flatnonzero(np.append(generator.random((rows, width)) < chance, generator.random(tail) < 0.7))


def sample_messages() -> list[Message]:
    generator = np.random.default_rng(5)
    places = torch.from_numpy(clustered(3, 60, 64, 90))
    uniform = torch.from_numpy(np.flatnonzero(generator.random(300) < 0.2))
    crowded = torch.from_numpy(np.flatnonzero(generator.random(200) < 0.9))
    return [
        {"round": 3, "rate": 0.1, "phase": "train", "last": False, "adapter": torch.randn(2, 3).half()},
        {"flags": torch.tensor([True, False, True]), "ids": torch.tensor([1, -2]), "none": torch.empty(0, 2)},
        {"update": Sparse(places, torch.arange(len(places)).to(torch.int8), 60 * 64 + 90)},
        {"update": Sparse(uniform, torch.ones(len(uniform), dtype=torch.bfloat16), 300)},
        {"a": Sparse(crowded, crowded % 2 == 0, 200), "b": Sparse(torch.arange(0), torch.empty(0), 9)},
    ]


SAMPLES = [encode(message) for message in sample_messages()]


def test_the_clustered_sample_uses_a_grid() -> None:
    start = SAMPLES[2].index(b"update") + len(b"update") + 1
    assert SAMPLES[2][start + len(varint(60 * 64 + 90)) + 2] != 0


@pytest.mark.parametrize("data", SAMPLES, ids=range(len(SAMPLES)))
def test_every_truncation_is_refused(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(WireError):
            decode(data[:length])


def accepted(data: bytes) -> bool:
    """Return True if the bytes are a message, which must then be one that can be written and read again."""
    try:
        message = decode(data)
    except WireError:
        return False
    again = encode(message)
    assert encode(decode(again)) == again
    return True


@pytest.mark.parametrize("data", SAMPLES, ids=range(len(SAMPLES)))
def test_a_flipped_bit_is_refused_or_makes_a_proper_message(data: bytes) -> None:
    for place in range(0, 8 * len(data), 7 if len(data) > 100 else 1):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        accepted(bytes(flipped))


@pytest.mark.parametrize("seed", range(4))
def test_random_damage_is_refused_or_makes_a_proper_message(seed: int) -> None:
    generator = np.random.default_rng(seed)
    for data in SAMPLES:
        for _ in range(150):
            damaged = bytearray(data)
            for place in generator.integers(2, len(data), generator.integers(1, 6)):
                damaged[place] = generator.integers(256)
            cut = int(generator.integers(len(data)))
            if generator.random() < 0.3:
                del damaged[cut : cut + int(generator.integers(1, 5))]
            accepted(bytes(damaged))


def test_random_index_codes_are_refused_or_are_sets_of_indices() -> None:
    generator = np.random.default_rng(9)
    found = 0
    for _ in range(3000):
        total = int(generator.integers(1, 24))
        depths = int(generator.choice([0, 0, 1, 4, 5, 10, 15]))
        width = varint(int(generator.integers(1, 40))) if depths else b""
        body = generator.bytes(int(generator.integers(1, 40)))
        size = int(generator.choice([total + 1, 30, 100, 1000, 1 << 40]))
        found += accepted(sparse_entry(bytes([total, depths]) + width + body, size, b""))
    assert found  # or the loop has shown nothing about what is accepted
