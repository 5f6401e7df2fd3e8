"""The entropy code of symbols: what comes out is what went in, near the entropy, and damage is found."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.wire import WireError
from refprotofl.wire.primitives import Reader
from refprotofl.wire.rans import decode_symbols, encode_symbols, least_code_bits


@settings(max_examples=60)
@given(size=st.integers(0, 20_000), spread=st.integers(1, 256), contexts=st.integers(1, 4), seed=st.integers(0, 9))
def test_any_symbols_come_back(size: int, spread: int, contexts: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    symbols = generator.integers(0, spread, size).astype(np.uint8)
    where = generator.integers(0, contexts, size)
    reader = Reader(encode_symbols(symbols, where, contexts) + b"rest")
    assert np.array_equal(decode_symbols(reader, where, contexts), symbols)
    assert bytes(reader.peek()) == b"rest"


def test_the_code_is_near_the_entropy() -> None:
    generator = np.random.default_rng(0)
    symbols = np.clip(np.rint(generator.normal(size=100_000)) + 128, 0, 255).astype(np.uint8)
    where = np.zeros(len(symbols), np.int64)
    entropy = least_code_bits(symbols, where, 1) / 8
    assert entropy == pytest.approx(100_000 * 2.105 / 8, rel=0.01)  # of a Gaussian rounded to whole numbers
    assert entropy < len(encode_symbols(symbols, where, 1)) < 1.015 * entropy


def test_one_symbol_alone_takes_its_table() -> None:
    symbols = np.full(1000, 7, np.uint8)
    assert len(encode_symbols(symbols, np.zeros(1000, np.int64), 1)) == 1 + 2 + 2 + 4


@settings(max_examples=60)
@given(st.binary(max_size=60))
def test_whatever_arrives_is_read_or_refused(data: bytes) -> None:
    try:
        found = decode_symbols(Reader(data), np.zeros(500, np.int64), 1)
    except WireError:
        return
    assert found.shape == (500,)
