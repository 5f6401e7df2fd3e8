"""Outside data, changed at random: they are read, or refused with the one allowed error.

A few thousand changes by default; many more with REFPROTOFL_FAULTS=full, which `make test-faults` sets.
"""

import os
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.conftest import Tried

from refprotofl.core.errors import DataError
from refprotofl.core.state import State
from refprotofl.core.streams import stream
from refprotofl.records.state_files import map_state, save_state
from refprotofl.wire import Message, Sparse, WireError, decode, encode
from refprotofl.wire.codec import MAX_FIELDS
from refprotofl.wire.values import ValueCode

CHANGES = 200_000 if os.environ.get("REFPROTOFL_FAULTS") == "full" else 3_000

MESSAGE: Message = {
    "adapter": Sparse(torch.arange(0, 90, 3), torch.linspace(-1, 1, 30), 100),
    "matrix": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "classes": torch.tensor([1, 2, 9], dtype=torch.uint8),
    **{"samples": 7, "scale": 0.5, "note": "größe", "on": True, "empty": torch.zeros(0)},
}
CODED: Message = {
    "weights": torch.linspace(-1, 1, 600).square(),
    "small": (torch.arange(900) % 7).to(torch.int8),
    "half": torch.linspace(-3, 3, 400).to(torch.bfloat16),
    "some": Sparse(torch.arange(0, 2000, 5), torch.linspace(0.5, 0.6, 400), 3000),
}
STATE: State = {"adapter": torch.linspace(-1, 1, 10), "samples": torch.arange(3), "round": 4, "name": "x"}


def changed(data: bytes, count: int, purpose: str) -> Iterator[bytes]:
    """Bits flipped, bytes set, cut off, put in, doubled: one to four of these at once."""
    draw = stream(0, purpose)
    for _ in range(count):
        new = bytearray(data)
        for _ in range(int(draw.integers(1, 5))):
            new = _change(new, draw)
        yield bytes(new)


def _change(data: bytearray, draw: np.random.Generator) -> bytearray:
    if not data:
        return bytearray(draw.bytes(4))
    place, kind = int(draw.integers(len(data))), int(draw.integers(5))
    if kind == 0:
        data[place] ^= 1 << int(draw.integers(8))
    elif kind == 1:
        data[place] = int(draw.choice([0, 1, 0x7F, 0x80, 0xFF]))
    elif kind == 2:
        del data[place:]
    elif kind == 3:
        data[place:place] = draw.bytes(int(draw.integers(1, 9)))
    else:
        data[place:place] = data[place : place + 16]
    return data


@pytest.mark.parametrize(("message", "value_code"), [(MESSAGE, "plain"), (CODED, "entropy")], ids=["plain", "coded"])
def test_messages(message: Message, value_code: ValueCode, tried: Tried) -> None:
    refused, count = 0, CHANGES if value_code == "plain" else CHANGES // 10
    for data in changed(encode(message, value_code), count, "messages"):
        try:
            again = encode(decode(data))  # it may be another code of the same, which costs its sender alone
            assert encode(decode(again)) == again
        except WireError:
            refused += 1
    assert count // 3 < refused < count
    tried("damaged messages", count)


@pytest.mark.parametrize(
    ("message", "value_code", "a_byte"), [(MESSAGE, "plain", 64), (CODED, "entropy", 320)], ids=["plain", "coded"]
)
def test_a_message_takes_no_more_memory_than_its_length_allows(
    message: Message, value_code: ValueCode, a_byte: int
) -> None:
    count = CHANGES // (10 if value_code == "plain" else 150)  # tracing takes long there
    tracemalloc.start()
    for data in changed(encode(message, value_code), count, "memory"):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        with suppress(WireError):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] - before < 100_000 + a_byte * len(data)
    tracemalloc.stop()


def test_a_message_of_very_many_fields_is_refused_at_once() -> None:
    most: Message = {f"{number}": True for number in range(MAX_FIELDS)}
    assert decode(encode(most)) == most
    with pytest.raises(WireError, match="4097 fields"):
        encode({**most, "more": True})
    with pytest.raises(WireError, match="200000 fields"):
        decode(bytes([0xF5, 1, 0xC0, 0x9A, 0x0C]))


def test_states(tmp_path: Path, tried: Tried) -> None:
    path = tmp_path / "state.safetensors"
    save_state(path, STATE, sync=False)
    refused, whole = 0, path.read_bytes()
    for data in changed(whole, CHANGES // 3, "states"):
        path.write_bytes(data)
        try:
            state, notes = map_state(path)
        except DataError:
            refused += 1
        else:
            assert all(isinstance(name, str) for name in (*state, *notes))
    assert refused > CHANGES // 10
    tried("damaged states", CHANGES // 3)
