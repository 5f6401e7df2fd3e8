import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from refprotofl.report.statistics import Paired, Verdict, estimate, holm, paired, spread, standings, verdict

# Accuracies of a test set with 10,000 images.
shares = st.integers(0, 10_000).map(lambda right: right / 10_000)
seeds = st.integers(0, 9)
p_values = st.lists(st.none() | st.floats(0, 1))


def test_three_seeds_by_hand() -> None:
    """Mean 2, standard deviation 1, t(0.975, 2) = 4.3027."""
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.half_width == pytest.approx(4.302652729911275 / math.sqrt(3), rel=1e-9)


def test_one_seed_has_no_interval() -> None:
    found = estimate([0.5])
    assert (found.mean, found.half_width, found.count) == (0.5, None, 1)


def test_a_paired_difference_by_hand() -> None:
    """Differences 1, 2, 3: t = 2 / (1 / sqrt 3) = sqrt 12; with 2 degrees of freedom p = 1 - t / sqrt(t² + 2)."""
    found = paired({0: 11.0, 1: 22.0, 2: 33.0}, {0: 10.0, 1: 20.0, 2: 30.0})
    assert found is not None
    assert (found.mean, found.count) == (2, 3)
    assert found.half_width == pytest.approx(4.302652729911275 / math.sqrt(3), rel=1e-9)
    assert found.p == pytest.approx(1 - math.sqrt(12 / 14), rel=1e-9)
    assert found.within_noise is True


def test_pairs_show_what_single_intervals_hide() -> None:
    """Partitions spread both by 20 points; one is better by 2 on each."""
    ours, theirs = {0: 0.521, 1: 0.62, 2: 0.719}, {0: 0.50, 1: 0.60, 2: 0.70}
    wide, found = estimate(list(ours.values())).half_width, paired(ours, theirs)
    assert wide is not None
    assert wide > 0.2
    assert found is not None
    assert found.half_width == pytest.approx(0.001 * 4.302652729911275 / math.sqrt(3))
    assert found.within_noise is False


def test_only_common_seeds_are_paired() -> None:
    assert paired({0: 1.0, 1: 5.0, 2: 9.0}, {2: 8.0, 1: 4.0, 7: 0.0}) == Paired(1.0, 0.0, 0.0, 2)
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_with_one_seed_nothing_is_claimed() -> None:
    found = paired({0: 0.75}, {0: 0.5})
    assert found == Paired(0.25, None, None, 1)
    assert found.within_noise is None


@pytest.mark.parametrize(("shift", "p", "within"), [(0.25, 0.0, False), (-0.25, 0.0, False), (0.0, 1.0, True)])
def test_differences_without_variance(shift: float, p: float, within: bool) -> None:
    base = {0: 0.5, 1: 0.625, 2: 0.25}
    found = paired({seed: value + shift for seed, value in base.items()}, base)
    assert found == Paired(shift, 0.0, p, 3)
    assert found.within_noise is within


@given(st.dictionaries(seeds, st.tuples(shares, shares), min_size=2))
def test_it_is_the_paired_t_test_and_its_interval_agrees(values: dict[int, tuple[float, float]]) -> None:
    ours, theirs = ({seed: both[side] for seed, both in values.items()} for side in (0, 1))
    found = paired(ours, theirs)
    assert found is not None
    assert found.p is not None
    assert found.within_noise is (found.p >= 0.05)
    assert found.half_width is not None
    if found.half_width > 1e-9:  # where differences are equal, scipy has no number
        known = ttest_rel(list(ours.values()), list(theirs.values()))
        assert found.p == pytest.approx(known.pvalue, rel=1e-6)
        interval = known.confidence_interval(0.95)
        assert found.mean - found.half_width == pytest.approx(interval.low, abs=1e-9)
        assert found.mean + found.half_width == pytest.approx(interval.high, abs=1e-9)


def test_holm_by_hand() -> None:
    """4 · 0.005, 3 · 0.01, 2 · 0.03, and 1 · 0.04, which is not below the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, None, 0.9]) == [1.0, None, 1.0]
    assert holm([]) == []


@given(p_values)
def test_holm_keeps_the_order_and_only_raises(ps: list[float | None]) -> None:
    adjusted = holm(ps)
    assert [p is None for p in adjusted] == [p is None for p in ps]
    both = sorted((p, raised) for p, raised in zip(ps, adjusted, strict=True) if p is not None and raised is not None)
    assert all(p <= raised <= 1 for p, raised in both)
    assert all(before <= after for (_, before), (_, after) in pairwise(both))


def test_rows_within_noise_of_the_best_are_marked() -> None:
    best = {0: 0.9, 1: 0.8, 2: 0.7}
    level = {0: 0.89, 1: 0.81, 2: 0.69}
    below = {0: 0.85, 1: 0.75, 2: 0.65}
    assert standings([below, level, best, {0: 0.1}, {}]) == ["behind", "within noise", "best", "behind", "behind"]
    assert standings([]) == []


def test_a_row_with_fewer_seeds_is_not_the_best() -> None:
    """Its mean is the higher one, on the only seed that both have it is behind."""
    assert standings([{0: 0.7, 1: 0.6, 2: 0.5}, {0: 0.65}]) == ["best", "behind"]


def test_the_spread_over_clients_by_hand() -> None:
    found = spread([0.5, None, 0.7, 0.9])
    assert found is not None
    assert found.worst == 0.5
    assert found.deviation == pytest.approx(math.sqrt(0.08 / 3))
    assert spread([None, None]) is None


HALF = 4.302652729911275 / math.sqrt(3)  # of three differences whose standard deviation is 1: t(0.975, 2) / sqrt 3


@pytest.mark.parametrize(
    ("mean", "margin", "said"),
    [
        (2.5, 1.0, "better"),  # from 0.016
        (2.48, 1.0, "not worse by more than the margin"),  # from -0.004
        (1.5, 1.0, "not worse by more than the margin"),  # from -0.984
        (1.48, 1.0, "undecided"),  # from -1.004 to 3.96
        (-2.48, 1.0, "undecided"),  # to 0.004
        (-2.5, 1.0, "worse"),  # to -0.016
        (-2.5, 5.0, "not worse by more than the margin"),  # from -4.98 to -0.016
        (1.5, 0.0, "undecided"),
    ],
)
def test_verdicts_by_hand(mean: float, margin: float, said: Verdict) -> None:
    """Three differences of mean minus 1, mean, mean plus 1: the interval is the mean plus or minus 2.4841."""
    found = paired({0: mean - 1, 1: mean, 2: mean + 1}, {0: 0.0, 1: 0.0, 2: 0.0})
    assert found is not None
    assert found.half_width == pytest.approx(HALF)
    assert verdict(found, margin) == said


def test_one_seed_decides_nothing() -> None:
    assert verdict(Paired(0.25, None, None, 1), 0.01) == "undecided"


RANK = {"worse": 0, "undecided": 0, "not worse by more than the margin": 1, "better": 2}


@given(st.dictionaries(seeds, shares, min_size=2), st.data(), st.floats(0, 0.2), st.floats(0, 0.2))
def test_exactly_one_verdict_holds_and_a_wider_margin_never_lowers_it(
    ours: dict[int, float], data: st.DataObject, margin: float, more: float
) -> None:
    theirs = {seed: data.draw(shares) for seed in ours}
    there, back = paired(ours, theirs), paired(theirs, ours)
    assert there is not None
    assert back is not None
    assert there.half_width is not None
    lower, upper = there.mean - there.half_width, there.mean + there.half_width
    holds = {
        "better": lower > 0,
        "not worse by more than the margin": -margin < lower <= 0,
        "worse": lower <= -margin and upper < 0 and lower <= 0,
        "undecided": lower <= -margin and upper >= 0 and lower <= 0,
    }
    assert [one for one, held in holds.items() if held] == [verdict(there, margin)]
    if verdict(there, margin) in ("better", "worse"):
        assert there.within_noise is False
    assert (verdict(there, margin) == "better") == (verdict(back, 0.0) == "worse")
    assert RANK[verdict(there, margin + more)] >= RANK[verdict(there, margin)]
