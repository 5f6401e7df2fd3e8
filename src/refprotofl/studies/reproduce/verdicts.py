"""Comparison of our numbers with those that the paper prints."""

from typing import Literal

from refprotofl.report import Estimate

Setting = Literal["paper's", "changed", "smaller"]

PRESET = "paper"  # the only one that is the paper's setting
LEAST_SEEDS = 3
CLOSE = 0.5  # points

RULE = (
    f"Against the paper: 'matches' within {CLOSE} points, else 'within noise' if its value lies in our 95 % interval, "
    f"else 'differs'; said only in the preset {PRESET} as it is, with {LEAST_SEEDS} seeds or more"
)


def verdict(ours: Estimate, printed: float, setting: Setting) -> str:
    """Compare an estimate with the paper's value, which is in percent."""
    if setting != "paper's":
        return f"{setting} setting"
    difference = points_to_paper(ours, printed)
    if ours.count < LEAST_SEEDS or ours.half_width is None:
        return f"{difference:+z.2f}"
    if abs(difference) <= CLOSE:
        return "matches"
    if abs(difference) <= 100 * ours.half_width:
        return "within noise"
    return f"differs by {difference:+z.2f}"


def points_to_paper(ours: Estimate, printed: float) -> float:
    """Return our mean minus the paper's value in points, rounded to the paper's two decimals."""
    return round(100 * ours.mean - printed, 2)
