import math

import pytest

from refprotofl.report.statistics import estimate


def test_three_seeds_by_hand() -> None:
    """Mean 2, standard deviation 1, t(0.975, 2) = 4.3027."""
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.half_width == pytest.approx(4.302652729911275 / math.sqrt(3), rel=1e-9)


def test_one_seed_has_no_interval() -> None:
    found = estimate([0.5])
    assert (found.mean, found.half_width, found.count) == (0.5, None, 1)
