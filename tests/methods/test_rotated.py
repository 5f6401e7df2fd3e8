"""The rotated quantiser: published errors, exact lengths, both sides of one mind."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from torch.nn import functional

from refprotofl.methods.builtin import thin
from refprotofl.methods.builtin.thin.quantisation import GAINS, code_bytes, decode_rotated, encode_rotated
from refprotofl.methods.common import rotated_quantiser as quantiser
from refprotofl.methods.common.rotated_quantiser import (
    BLOCK,
    gaussian,
    hadamard,
    number_of_blocks,
    rotated,
    unrotated,
)


def draw() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize(("bits", "error"), [(1, 0.3634), (2, 0.1175), (3, 0.03454), (4, 0.009497)])
def test_the_levels_are_those_of_max_1960(bits: int, error: float) -> None:
    assert quantiser.error(bits) == pytest.approx(error, rel=1e-3)


def test_one_and_two_bits_have_the_known_levels() -> None:
    assert quantiser.levels(1) == pytest.approx([-0.7979, 0.7979], abs=1e-4)
    assert quantiser.levels(2) == pytest.approx([-1.510, -0.4528, 0.4528, 1.510], abs=1e-3)
    assert quantiser.edges(2) == pytest.approx([-0.9816, 0, 0.9816], abs=1e-3)


@pytest.mark.parametrize("bits", range(1, quantiser.MOST_BITS + 1))
def test_the_constants_are_where_lloyds_iteration_ends(bits: int) -> None:
    """Levels are the means of their cells, which end half-way between levels; the error is what these leave."""
    levels = quantiser.levels(bits)
    ends = np.concatenate([[-np.inf], quantiser.edges(bits), [np.inf]])
    mass, moment = np.diff(ndtr(ends)), -np.diff(gaussian(ends))
    assert levels == pytest.approx(moment / mass, abs=2e-6)
    assert quantiser.error(bits) == pytest.approx(1 - 2 * levels @ moment + levels**2 @ mass, abs=1e-8)


def test_gains_times_squared_scales_are_exact() -> None:
    """A product of whole numbers below 2**53: no machine rounds it otherwise than another."""
    assert (np.diff(GAINS) < 0).all()
    assert int(GAINS[0]) * 255**2 < 2**53


def test_many_blocks_are_rotated_as_each_by_itself() -> None:
    vector = torch.randn(40 * BLOCK + 100, generator=torch.Generator().manual_seed(0))
    signs = torch.from_numpy(draw().integers(0, 2, 40 * BLOCK + 128) * 2.0 - 1)
    alone = torch.cat([hadamard(one) for one in (functional.pad(vector.double(), (0, 28)) * signs).split(BLOCK)])
    assert torch.equal(rotated(vector, draw), alone)
    assert torch.equal(unrotated(alone, len(vector), draw), vector)


def test_hadamard_by_hand() -> None:
    assert hadamard(torch.tensor([1.0, 0, 0, 0])).tolist() == [0.5, 0.5, 0.5, 0.5]
    assert hadamard(torch.tensor([1.0, 2, 3, 4])).tolist() == [5, -1, -2, 0]
    vector = torch.randn(64, dtype=torch.float64)
    assert torch.allclose(hadamard(hadamard(vector)), vector)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_a_vector_whatever_its_shape_is_coded_with_the_gaussians_error(bits: int) -> None:
    """A few large values in a block: without the rotation one bit a value would miss them all."""
    vector = torch.zeros(2 * BLOCK)
    vector[::16] = torch.randn(len(vector) // 16, generator=torch.Generator().manual_seed(0))
    said = decode_rotated(encode_rotated(vector, code_bytes(len(vector), bits), draw), len(vector), draw)
    error = float((said - vector).square().sum() / vector.square().sum())
    assert error == pytest.approx(quantiser.error(bits), rel=0.15)


def test_bits_go_to_the_blocks_that_moved() -> None:
    """One of four blocks is ten times as large: at one bit a value on average it gets most."""
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(4 * BLOCK, generator=generator)
    vector[:BLOCK] *= 10
    coded = encode_rotated(vector, code_bytes(len(vector), 1), draw)
    said = decode_rotated(coded, len(vector), draw)
    error = (said - vector).view(4, -1).square().mean(dim=1) / torch.tensor([100.0, 1, 1, 1])
    assert error[0] == pytest.approx(quantiser.error(4), rel=0.1)  # all four
    assert error[1:].tolist() == pytest.approx([1, 1, 1], rel=0.1)  # none left


@settings(max_examples=60)
@given(
    size=st.integers(1, 10_000),
    length=st.integers(0, 3_000),
    scale=st.sampled_from([0.0, 1e-20, 1.0, 1e20]),
    seed=st.integers(0, 5),
)
def test_any_vector_in_any_length(size: int, length: int, scale: float, seed: int) -> None:
    vector = scale * torch.randn(size, generator=torch.Generator().manual_seed(seed))
    coded = encode_rotated(vector, length, draw)
    assert (len(coded.code), len(coded.scales)) == (length, number_of_blocks(size))
    said = decode_rotated(coded, size, draw)
    assert said.shape == vector.shape
    assert torch.isfinite(said).all()
    assert said.double().norm() <= 1.1 * vector.double().norm()
    assert bool(said.any()) == bool(length and scale)  # a byte says something already


def test_the_bits_that_are_left_go_to_the_next_block() -> None:
    """Half a block's bits: its first half has a bit a value, and takes off half of what a bit takes off."""
    vector = torch.randn(BLOCK, generator=torch.Generator().manual_seed(0))
    said = decode_rotated(encode_rotated(vector, BLOCK // 16, draw), BLOCK, draw)
    left = float((said - vector).square().sum() / vector.square().sum())
    assert left == pytest.approx((1 + quantiser.error(1)) / 2, rel=0.02)


@pytest.mark.parametrize("bits", [1, 1.5, 2])
def test_unbiased_means_of_many_go_to_what_was_coded(bits: float) -> None:
    """Lloyd and Max's levels shorten what they code, and so does a mean of them; 64 other rotations tell."""
    vector = torch.randn(BLOCK, generator=torch.Generator().manual_seed(0))
    draws = [partial(np.random.default_rng, seed) for seed in range(64)]
    coded = [encode_rotated(vector, code_bytes(BLOCK, bits), one) for one in draws]
    means = []
    for unbiased in (False, True):
        read = [decode_rotated(one, BLOCK, by, unbiased) for one, by in zip(coded, draws, strict=True)]
        means.append(float(torch.stack(read).mean(dim=0) @ vector / vector.square().sum()))
    assert means[0] < 1 - 0.9 * (quantiser.error(int(bits)) + quantiser.error(math.ceil(bits))) / 2
    assert means[1] == pytest.approx(1, abs=0.005)


def test_another_rotation_reads_nothing() -> None:
    vector = torch.randn(BLOCK, generator=torch.Generator().manual_seed(0))
    coded = encode_rotated(vector, code_bytes(len(vector), 4), draw)
    other = decode_rotated(coded, len(vector), lambda: np.random.default_rng(8))
    assert abs(float(torch.corrcoef(torch.stack([other, vector]))[0, 1])) < 0.1


def test_thin_declares_the_blocks_that_there_are() -> None:
    assert thin.BLOCK == BLOCK
