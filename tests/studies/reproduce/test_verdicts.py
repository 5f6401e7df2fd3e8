"""Verdicts on our numbers next to the paper's, at the borders."""

import pytest

from refprotofl.report.statistics import Estimate
from refprotofl.studies.reproduce.verdicts import RULE, verdict


@pytest.mark.parametrize(
    ("mean", "half_width", "seeds", "said"),
    [
        (0.4551, 0.0, 3, "matches"),
        (0.4601, 0.0, 3, "matches"),  # 0.5 points, exactly
        (0.4501, 0.2, 3, "matches"),
        (0.4602, 0.0, 3, "differs by +0.51"),
        (0.4500, 0.001, 3, "differs by -0.51"),
        (0.4651, 0.0101, 3, "within noise"),
        (0.4651, 0.0099, 3, "differs by +1.00"),
        (0.4351, 0.0201, 5, "within noise"),
        (0.4351, 0.3, 2, "-2.00"),
        (0.4551, 0.3, 2, "+0.00"),
        (0.45509999, 0.3, 2, "+0.00"),
        (0.4751, None, 1, "+2.00"),
    ],
)
def test_with_three_seeds_a_verdict_with_fewer_the_difference(
    mean: float, half_width: float | None, seeds: int, said: str
) -> None:
    assert verdict(Estimate(mean, half_width, seeds), 45.51, "paper's") == said


def test_elsewhere_nothing_is_claimed() -> None:
    assert verdict(Estimate(0.4551, 0.0, 5), 45.51, "smaller") == "smaller setting"
    assert verdict(Estimate(0.4551, 0.0, 5), 45.51, "changed") == "changed setting"


def test_the_rule_has_its_numbers() -> None:
    assert "'matches' within 0.5 points" in RULE
    assert "preset paper as it is, with 3 seeds or more" in RULE
