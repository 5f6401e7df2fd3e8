"""The entropy code and the sparse code compared with the rotated one: lengths, errors, and vectors of any kind."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.methods.builtin.thin import entropy_code
from refprotofl.methods.builtin.thin.entropy_code import decode_entropy, encode_entropy, least_entropy
from refprotofl.methods.builtin.thin.quantisation import Coded, code_bytes, decode_rotated, encode_rotated
from refprotofl.methods.builtin.thin.sparse_code import decode_sparse, encode_sparse, least_sparse
from refprotofl.methods.common.rotated_quantiser import BLOCK, error
from refprotofl.wire.primitives import WireError

pytestmark = pytest.mark.slow


def draw() -> np.random.Generator:
    return np.random.default_rng(7)


def gaussian(size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0))


def left(vector: torch.Tensor, said: torch.Tensor) -> float:
    return float((said - vector).square().sum() / vector.square().sum())


@pytest.mark.parametrize(("bits", "decibel"), [(1, 4.64), (2, 10.55), (3, 16.56)])
def test_the_entropy_code_has_the_error_that_is_known_of_it(bits: int, decibel: float) -> None:
    """Known of uniform thresholds and ideal codes (Jayant and Noll 1984); ours loses some to what goes along."""
    vector = gaussian(16 * BLOCK)
    said = decode_entropy(encode_entropy(vector, code_bytes(len(vector), bits)), len(vector))
    assert -10 * math.log10(left(vector, said)) == pytest.approx(decibel, abs=0.25)
    assert left(vector, said) < error(bits)


@settings(max_examples=40)
@given(size=st.integers(1, 9_000), length=st.integers(3, 3_000), scale=st.sampled_from([0.0, 1e-20, 1.0, 1e20]))
def test_any_vector_in_any_length(size: int, length: int, scale: float) -> None:
    vector = scale * gaussian(size)
    for coded, said in (
        ((one := encode_entropy(vector, length)), decode_entropy(one, size)),
        ((two := encode_sparse(vector, length)), decode_sparse(two, size)),
    ):
        assert len(coded.code) == length
        assert said.shape == vector.shape
        assert torch.isfinite(said).all()
        assert said.double().norm() <= 1.2 * vector.double().norm()


def test_few_large_values_are_no_case_for_a_rotation() -> None:
    """It spreads them over their block, where a quarter of a bit a value misses most of them."""
    vector = torch.zeros(4 * BLOCK)
    vector[::100] = gaussian(len(vector) // 100 + 1)
    length = code_bytes(len(vector), 0.25)
    sparse = decode_sparse(encode_sparse(vector, length), len(vector))
    entropy = decode_entropy(encode_entropy(vector, length), len(vector))
    rotated = decode_rotated(encode_rotated(vector, length, draw), len(vector), draw)
    assert left(vector, entropy) < left(vector, sparse) < 0.05 < 0.5 < left(vector, rotated)


def test_the_entropy_code_is_the_best_of_the_three_where_values_differ_in_size_from_place_to_place() -> None:
    """Draw a vector like a layer, some rows of which move more than others."""
    rows = torch.exp(gaussian(200)).repeat_interleave(512)
    vector = gaussian(len(rows) + 1)[1:] * rows
    for bits in (0.25, 0.5, 1, 2):
        length = code_bytes(len(vector), bits)
        entropy = left(vector, decode_entropy(encode_entropy(vector, length), len(vector)))
        sparse = left(vector, decode_sparse(encode_sparse(vector, length), len(vector)))
        rotated = left(vector, decode_rotated(encode_rotated(vector, length, draw), len(vector), draw))
        assert entropy < 0.95 * min(sparse, rotated), bits


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_a_step_finds_its_size_by_itself(scale: float) -> None:
    vector = gaussian(5_000)
    said = decode_entropy(encode_entropy(scale * vector, 1_250), 5_000) / scale
    assert left(vector, said) == pytest.approx(
        left(vector, decode_entropy(encode_entropy(vector, 1_250), 5_000)), rel=0.05
    )


def test_a_code_that_no_encoder_wrote_is_refused() -> None:
    vector = gaussian(3_000)
    coded = encode_entropy(vector, 400)
    broken = [
        Coded(coded.code[:100], coded.scales),
        Coded(torch.zeros_like(coded.code), coded.scales),
        Coded(coded.code, coded.scales * 1e38),
        Coded(torch.full_like(coded.code, 255), coded.scales),
    ]
    for one in broken:
        with pytest.raises(WireError):
            decode_entropy(one, 3_000)
    assert not decode_entropy(Coded(coded.code, torch.zeros_like(coded.scales)), 3_000).any()


@settings(max_examples=100)
@given(data=st.data())
def test_whatever_comes_is_a_vector_or_refused(data: st.DataObject) -> None:
    """Any change of any byte."""
    coded = encode_entropy(gaussian(1_000), 150)
    code = coded.code.clone()
    code[data.draw(st.integers(0, 149))] = data.draw(st.integers(0, 255))
    try:
        said = decode_entropy(Coded(code, coded.scales), 1_000)
    except WireError:
        return
    assert said.shape == (1_000,)
    assert torch.isfinite(said).all()


def test_a_few_huge_values_do_not_silence_the_others() -> None:
    """Heavy tails: most values are far below the largest, and count all the same; more bytes hardly ever hurt."""
    vector = gaussian(25 * BLOCK) * torch.exp(1.5 * gaussian(26 * BLOCK)[BLOCK:])
    errors = []
    for bits in (0.125, 0.25, 0.5, 1, 2, 4):
        said = decode_sparse(encode_sparse(vector, code_bytes(len(vector), bits)), len(vector))
        errors.append(left(vector, said))
    assert errors[1] < 0.15
    assert all(after < 1.1 * before for before, after in pairwise(errors))


def test_more_bits_buy_the_sparse_code_more_values_and_then_finer_ones() -> None:
    """A model that is sent whole, in 8 bits a weight, is not to stay a hundredth away."""
    vector = gaussian(25 * BLOCK)
    errors = []
    for bits in range(1, 9):
        coded = encode_sparse(vector, code_bytes(len(vector), bits))
        errors.append(left(vector, decode_sparse(coded, len(vector))))
    assert all(after < before / 2 for before, after in pairwise(errors[1:]))
    assert errors[-1] < 3e-4


@pytest.mark.parametrize("size", [60, 255, 256, 1_000, 4_000, 50_658, 160_074])
def test_the_least_code_says_something_of_any_vector(size: int) -> None:
    """The length that an error names suffices: for even vectors, for heavy tails, for a single value anywhere."""
    draw_of = np.random.default_rng(size)
    for number in range(6):
        vector = torch.from_numpy(draw_of.standard_normal(size).astype(np.float32))
        if number % 3 == 1:
            vector = vector * torch.from_numpy(np.exp(2 * draw_of.standard_normal(size)).astype(np.float32))
        elif number % 3 == 2:
            vector = torch.zeros(size).index_fill(0, torch.tensor([int(draw_of.integers(size))]), 1.0)
        assert decode_sparse(encode_sparse(vector, least_sparse(size)), size).any()
        assert decode_entropy(encode_entropy(vector, least_entropy(size)), size).any()


def test_more_bits_always_buy_something() -> None:
    """A value a thousand times as large as the others takes all levels of a symbol: a second step codes the rest."""
    vector = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    vector[77] = 1000.0
    errors = []
    for bits in (2, 4, 6, 8):
        coded = encode_entropy(vector, 2500 * bits)
        assert decode_entropy(coded, len(vector))[77] == pytest.approx(1000.0, rel=0.01)
        errors.append(float((decode_entropy(coded, len(vector)) - vector).square().mean()))
    assert all(finer < coarser / 4 for coarser, finer in pairwise(errors))
    assert errors[-1] < 1e-3


def test_a_second_step_is_not_written_where_the_bytes_left_allow_no_finer_one() -> None:
    rest = np.random.default_rng(0).standard_normal(600)
    contexts, most = np.zeros(600, np.int64), float(np.abs(rest).max())
    assert entropy_code._second(rest, contexts, 600, 600, most) != b""
    assert entropy_code._second(rest, contexts, 600, 100, most / 127) == b""  # the reader refuses a coarser one


def test_a_second_step_that_is_not_finer_is_refused() -> None:
    vector = torch.zeros(300)
    vector[:2] = torch.tensor([1.0, 0.001])
    coded = encode_entropy(vector, 300)
    assert decode_entropy(coded, 300)[1] == pytest.approx(0.001, rel=0.05)
    coarser = Coded(coded.code, coded.scales / 1e6)
    with pytest.raises(WireError, match="not finer"):
        decode_entropy(coarser, 300)
