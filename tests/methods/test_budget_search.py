"""Finding what an uplink budget buys with few encodings gives what plain bisection gives."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.methods import apud
from refprotofl.wire import Sparse, budget, encode


@st.composite
def growing_sizes(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Sizes of 1, 2, … values that grow with small dips, a limit that one value keeps, and the bytes of a value."""
    most, value_bytes = draw(st.integers(1, 5000)), draw(st.sampled_from([1, 2, 4]))
    generator = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    index_bytes = draw(st.floats(0, 2)) * generator.random(most)
    exact = draw(st.integers(5, 9000)) + np.cumsum(value_bytes + index_bytes)
    limit = int(exact[draw(st.integers(0, most - 1))]) + draw(st.integers(0, 50))
    dips = generator.random(most) * draw(st.floats(0, 8 + limit // 1024))
    sizes = (exact - dips).astype(int).tolist()
    return sizes, max(limit, sizes[0]), value_bytes


@given(growing_sizes())
@settings(max_examples=300)
def test_sizes_that_grow_with_small_dips_give_what_bisection_gives(case: tuple[list[int], int, int]) -> None:
    sizes, limit, value_bytes = case
    plain = budget.largest_that_fits(lambda keep: sizes[keep - 1] <= limit, len(sizes))
    assert budget.largest_within(lambda keep: sizes[keep - 1], limit, len(sizes), value_bytes) == plain


@given(st.lists(st.integers(1, 60), min_size=1, max_size=80), st.integers(0, 60), st.sampled_from([1, 2, 4]))
def test_whatever_the_sizes_it_fits_and_one_more_would_not(sizes: list[int], more: int, value_bytes: int) -> None:
    limit, most = sizes[0] + more, len(sizes)
    keep = budget.largest_within(lambda keep: sizes[keep - 1], limit, most, value_bytes)
    assert sizes[keep - 1] <= limit
    assert keep == most or sizes[keep] > limit


def restless(seed: int, rows: int, width: int) -> torch.Tensor:
    """A movement with busy and silent rows and columns, as a trained adapter has it."""
    generator = np.random.default_rng(seed)
    pace = np.outer(generator.random(rows) ** 4, generator.random(width) ** 4)
    return torch.from_numpy((pace * generator.standard_normal((rows, width))).astype(np.float32).ravel())


@pytest.mark.parametrize("limit", [300, 1900, 5000, 9000, 20_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_masks_like_real_ones_give_what_bisection_gives(limit: int, dtype: torch.dtype) -> None:
    moved = restless(limit, 48, 128)
    looked: set[int] = set()

    def size(keep: int) -> int:
        looked.add(keep)
        indices = apud.select(moved, torch.zeros_like(moved), keep).nonzero().squeeze(1)
        return len(encode({"adapter": Sparse(indices, moved[indices].to(dtype), len(moved))}))

    found = budget.largest_within(size, limit, len(moved), dtype.itemsize)
    encodings = len(looked)
    looked.clear()
    assert found == budget.largest_that_fits(lambda keep: size(keep) <= limit, len(moved))
    if dtype is torch.float32:  # narrow values near their limit of all may take a look or two more
        assert encodings < len(looked)
