"""The index code is exact, near the least possible for random masks, and below it for clustered ones."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.bench.codes import bound_bytes, uniform_masks
from refprotofl.wire.index_grid import least_bits
from refprotofl.wire.indices import decode_indices, describe, encode_indices, golomb_parameters
from refprotofl.wire.primitives import Reader

SIZES = (66_954, 267_786)  # adapters of 512 inputs, with 128 and with 512 features, ten classes


def decoded(code: bytes, size: int) -> np.ndarray:
    reader = Reader(code + b"rest")
    indices = decode_indices(reader, size, most=size)
    assert bytes(reader.peek()) == b"rest"
    return indices


def ratio(mask: np.ndarray) -> float:
    indices = np.flatnonzero(mask)
    return len(encode_indices(indices, mask.size)) / bound_bytes(mask.size, indices.size)


@pytest.mark.parametrize("size", SIZES)
def test_uniform_masks_are_within_three_percent_of_the_bound(size: int) -> None:
    masks = uniform_masks([size], [0.01, 0.05, 0.1, 0.2, 0.3, 0.5])
    assert max(map(ratio, masks.values())) <= 1.03


@pytest.mark.parametrize("size", SIZES)
def test_uniform_masks_are_within_five_percent_at_any_density(size: int) -> None:
    shares = [*np.arange(0.01, 0.1, 0.01), *np.arange(0.1, 1.0, 0.02), 0.382, 0.618, 0.99]
    masks = uniform_masks([size], shares)
    assert max(map(ratio, masks.values())) <= 1.05


@pytest.mark.parametrize("size", [1, 8, *SIZES, 1 << 40])
def test_nothing_marked_costs_one_byte(size: int) -> None:
    assert encode_indices(np.arange(0), size) == b"\x00"


def test_everything_marked_costs_the_number_of_marks() -> None:
    assert len(encode_indices(np.arange(SIZES[0]), SIZES[0])) == 3


@pytest.mark.parametrize("index", [0, 1234, SIZES[1] - 1])
def test_a_single_mark_costs_a_few_bytes(index: int) -> None:
    code = encode_indices(np.array([index]), SIZES[1])
    assert len(code) <= 5
    assert decoded(code, SIZES[1]).tolist() == [index]


@pytest.mark.parametrize("size", range(10))
def test_every_mask_of_a_small_vector_has_its_own_code(size: int) -> None:
    codes = set()
    for marks in product([False, True], repeat=size):
        indices = np.flatnonzero(marks)
        code = encode_indices(indices, size)
        assert decoded(code, size).tolist() == indices.tolist()
        codes.add(code)
    assert len(codes) == 2**size


def busy_lines(seed: int, rows: int, width: int, tail: int, power: float) -> np.ndarray:
    """A mask with busy and silent rows and columns, and a tail of which most is marked."""
    generator = np.random.default_rng(seed)
    chance = np.outer(generator.random(rows) ** power, generator.random(width) ** power)
    return np.append(generator.random((rows, width)) < chance, generator.random(tail) < 0.8)


def test_busy_rows_and_columns_make_the_code_shorter_than_the_bound() -> None:
    mask = busy_lines(1, 128, 512, 1418, power=3)
    assert "grid of width 512" in describe(encode_indices(np.flatnonzero(mask), mask.size))
    assert ratio(mask) < 0.75


def test_busy_blocks_alone_are_used_too() -> None:
    mask = np.random.default_rng(2).random((300, 200)) < np.repeat([0.01, 0.6], [280, 20])[:, None]
    assert ratio(mask.ravel()) < 0.85


@given(
    seed=st.integers(0, 1 << 32),
    rows=st.integers(1, 80),
    width=st.sampled_from([7, 32, 64, 100, 256]),
    tail=st.integers(0, 100),
    power=st.sampled_from([0.1, 1, 3, 9]),
)
@settings(max_examples=150)
def test_masks_of_any_shape_survive(seed: int, rows: int, width: int, tail: int, power: float) -> None:
    mask = busy_lines(seed, rows, width, tail, power)
    indices = np.flatnonzero(mask)
    assert np.array_equal(decoded(encode_indices(indices, mask.size), mask.size), indices)


def test_least_bits_agree_with_the_logarithm_of_the_library() -> None:
    marks = np.append(0, np.geomspace(1, 1 << 30, 400).astype(np.int64))
    sizes = np.full_like(marks, 1 << 30)
    shares = marks / sizes
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -shares * np.log2(shares) - (1 - shares) * np.log2(1 - shares)
    assert np.allclose(least_bits(sizes, marks), sizes * np.nan_to_num(entropy), rtol=0, atol=1e-6 * (1 << 30))


def test_golomb_parameters_are_the_optimal_ones() -> None:
    # Gallager and Van Voorhis: the least m with q**m + q**(m + 1) <= 1, q being the chance of no mark.
    marks = np.arange(1, 501)
    chosen = golomb_parameters(np.full_like(marks, 1000), marks)
    for mark, parameter in zip(marks.tolist(), chosen.tolist(), strict=True):
        unmarked = 1 - mark / 1000
        best = next(m for m in range(1, 1000) if unmarked**m + unmarked ** (m + 1) <= 1)
        assert abs(parameter - best) <= 1
