"""How a number of ours stands to the one that the paper prints."""

from refprotofl.report.statistics import Estimate

PRESET = "paper"  # the only one that is the paper's setting
LEAST_SEEDS = 3
CLOSE = 0.5  # points

RULE = (
    f"Against the paper: 'matches' within {CLOSE} points, else 'within noise' if its value lies in our 95 % interval, "
    f"else 'differs'; said only in the preset {PRESET} with {LEAST_SEEDS} seeds or more"
)


def verdict(ours: Estimate, printed: float, preset: str) -> str:
    """`printed` is in percent."""
    if preset != PRESET:
        return "smaller setting"
    difference = 100 * ours.mean - printed
    if ours.count < LEAST_SEEDS or ours.half_width is None:
        return f"{difference:+.2f}"
    if abs(difference) <= CLOSE:
        return "matches"
    if abs(difference) <= 100 * ours.half_width:
        return "within noise"
    return f"differs by {difference:+.2f}"
