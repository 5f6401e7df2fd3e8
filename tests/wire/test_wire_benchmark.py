"""The table of the index code."""

import numpy as np
import pytest

from refprotofl.bench.codes import bound_bytes, code_table, uniform_masks


def test_the_bound_by_hand() -> None:
    assert bound_bytes(4, 2) == pytest.approx(np.log2(6) / 8)
    assert bound_bytes(9, 0) == bound_bytes(9, 9) == 0


def test_a_table_has_a_row_for_each_mask() -> None:
    masks = uniform_masks([1000], [0.1]) | {"none": np.zeros(20, bool)}
    uniform, none = code_table(masks, repeats=1)
    assert (uniform.name, uniform.size, uniform.marked) == ("uniform 1000 10.0%", 1000, 100)
    assert (uniform.bitmap_bytes, uniform.uint32_bytes, uniform.variant) == (125, 400, "golomb")
    assert uniform.ratio == pytest.approx(uniform.code_bytes / bound_bytes(1000, 100))
    assert (none.code_bytes, none.ratio, none.variant) == (1, None, "empty or full")


def test_uniform_masks_are_the_same_again() -> None:
    first, second = (uniform_masks([500], [0.3]) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)
