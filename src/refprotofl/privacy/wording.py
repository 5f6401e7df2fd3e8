"""Epsilon for people: never without its unit, its delta and what it compares."""

from refprotofl.core.units import counted, three_figures
from refprotofl.privacy.accounting import Spent

EXCHANGED = {
    "zero-out-one": "one sample exchanged for one that adds nothing",
    "replace-one": "one client exchanged for another",
}


def in_cell(spent: Spent) -> str:
    return "no bound" if spent["epsilon"] is None else f"{three_figures(spent['epsilon'])} ({spent['unit']})"


def meaning(spent: Spent) -> str:
    """What an epsilon of this kind says, whatever its value."""
    whose = " of the client with the largest" if spent["unit"] == "sample" else ""
    relation = spent["relation"]
    return f"by {spent['unit']}{whose}, at delta {spent['delta']:g}, {relation} ({EXCHANGED[relation]})"


def sentence(spent: Spent) -> str:
    if spent["epsilon"] is None:
        return f"Privacy by {spent['unit']}: no guarantee, as privacy.noise = 0"
    median = spent.get("epsilon_median")
    beside = "" if median is None else f" (of the median client {three_figures(median)})"
    epsilon = three_figures(spent["epsilon"])
    return f"Privacy: epsilon {epsilon}{beside} over {counted(spent['rounds'], 'round')}, {meaning(spent)}"
