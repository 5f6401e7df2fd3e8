"""The rotated quantiser: published errors, exact lengths, both sides of one mind."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.methods.builtin import thin
from refprotofl.methods.common import rotated
from refprotofl.methods.common.rotated import code_bytes, decode_rotated, encode_rotated
from refprotofl.methods.common.rotation import BLOCK, hadamard, number_of_blocks


def draw() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize(("bits", "error"), [(1, 0.3634), (2, 0.1175), (3, 0.03454), (4, 0.009497)])
def test_the_levels_are_those_of_max_1960(bits: int, error: float) -> None:
    assert rotated.error(bits) == pytest.approx(error, rel=1e-3)


def test_one_and_two_bits_have_the_known_levels() -> None:
    assert rotated.levels(1) == pytest.approx([-0.7979, 0.7979], abs=1e-4)
    assert rotated.levels(2) == pytest.approx([-1.510, -0.4528, 0.4528, 1.510], abs=1e-3)
    assert rotated.edges(2) == pytest.approx([-0.9816, 0, 0.9816], abs=1e-3)


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
    assert error == pytest.approx(rotated.error(bits), rel=0.15)


def test_bits_go_to_the_blocks_that_moved() -> None:
    """Of four blocks one is ten times as large: at one bit a value on average it gets most."""
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(4 * BLOCK, generator=generator)
    vector[:BLOCK] *= 10
    coded = encode_rotated(vector, code_bytes(len(vector), 1), draw)
    said = decode_rotated(coded, len(vector), draw)
    error = (said - vector).view(4, -1).square().mean(dim=1) / torch.tensor([100.0, 1, 1, 1])
    assert error[0] == pytest.approx(rotated.error(4), rel=0.1)  # all four
    assert error[1:].tolist() == pytest.approx([1, 1, 1], rel=0.1)  # none left


@settings(max_examples=60, deadline=None)
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
    if not length or not scale:
        assert not said.any()


def test_another_rotation_reads_nothing() -> None:
    vector = torch.randn(BLOCK, generator=torch.Generator().manual_seed(0))
    coded = encode_rotated(vector, code_bytes(len(vector), 4), draw)
    other = decode_rotated(coded, len(vector), lambda: np.random.default_rng(8))
    assert abs(float(torch.corrcoef(torch.stack([other, vector]))[0, 1])) < 0.1


def test_thin_declares_the_blocks_that_there_are() -> None:
    assert thin.BLOCK == BLOCK
