"""The entropy code and the sparse code beside the rotated one: lengths, errors, and vectors of any kind."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.methods.common import lloyd_max
from refprotofl.methods.common.entropy_coded import decode_entropy, encode_entropy
from refprotofl.methods.common.rotated import code_bytes
from refprotofl.methods.common.rotation import BLOCK
from refprotofl.methods.common.sparse_coded import decode_sparse, encode_sparse


def draw() -> np.random.Generator:
    return np.random.default_rng(7)


def gaussian(size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0))


def left(vector: torch.Tensor, said: torch.Tensor) -> float:
    return float((said - vector).square().sum() / vector.square().sum())


@pytest.mark.parametrize(("bits", "decibel"), [(1, 4.64), (2, 10.55), (3, 16.56)])
def test_the_entropy_code_has_the_error_that_is_known_of_it(bits: int, decibel: float) -> None:
    """Known of uniform thresholds and ideal codes (Jayant and Noll 1984); ours loses some to tables and lanes."""
    vector = gaussian(16 * BLOCK)
    said = decode_entropy(encode_entropy(vector, code_bytes(len(vector), bits), draw), len(vector), draw)
    assert -10 * math.log10(left(vector, said)) == pytest.approx(decibel, abs=0.2)
    assert left(vector, said) < lloyd_max.error(bits)


@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 9_000), length=st.integers(3, 3_000), scale=st.sampled_from([0.0, 1e-20, 1.0, 1e20]))
def test_any_vector_in_any_length(size: int, length: int, scale: float) -> None:
    vector = scale * gaussian(size)
    for coded, said in (
        ((one := encode_entropy(vector, length, draw)), decode_entropy(one, size, draw)),
        ((two := encode_sparse(vector, length)), decode_sparse(two, size)),
    ):
        assert len(coded.code) == length
        assert said.shape == vector.shape
        assert torch.isfinite(said).all()
        assert said.double().norm() <= 1.2 * vector.double().norm()


def test_few_large_values_are_what_a_sparse_code_is_for() -> None:
    """A rotation spreads them over their block, where a quarter of a bit a value misses most of them."""
    vector = torch.zeros(4 * BLOCK)
    vector[::100] = gaussian(len(vector) // 100 + 1)
    length = code_bytes(len(vector), 0.25)
    sparse = decode_sparse(encode_sparse(vector, length), len(vector))
    entropy = decode_entropy(encode_entropy(vector, length, draw), len(vector), draw)
    assert left(vector, sparse) < 0.05 < 0.5 < left(vector, entropy)


def test_a_few_huge_values_do_not_silence_the_others() -> None:
    """With heavy tails most values are far below the largest, and count all the same; more bytes hardly ever hurt."""
    vector = gaussian(25 * BLOCK) * torch.exp(1.5 * gaussian(26 * BLOCK)[BLOCK:])
    errors = []
    for bits in (0.125, 0.25, 0.5, 1, 2, 4):
        said = decode_sparse(encode_sparse(vector, code_bytes(len(vector), bits)), len(vector))
        errors.append(left(vector, said))
    assert errors[1] < 0.15
    assert all(after < 1.1 * before for before, after in pairwise(errors))
