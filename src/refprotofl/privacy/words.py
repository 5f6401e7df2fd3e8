"""Epsilon for people: never without its unit, its delta and what it compares."""

from refprotofl.privacy.accounting import Spent

MEANING = {
    "zero-out-one": "one sample exchanged for one that adds nothing",
    "replace-one": "one client exchanged for another",
}


def short(spent: Spent) -> str:
    """For the cell of a table."""
    return "none" if spent["epsilon"] is None else f"{spent['epsilon']:.3g}"


def sentence(spent: Spent) -> str:
    unit, relation = spent["unit"], spent["relation"]
    if spent["epsilon"] is None:
        return f"Privacy by {unit}: no guarantee, as privacy.noise = 0"
    median = spent.get("epsilon_median")
    worst = "" if median is None else f" of the worst client, {median:.3g} of the median one,"
    return (
        f"Privacy by {unit}: epsilon {spent['epsilon']:.3g}{worst} at delta {spent['delta']:g}, "
        f"{relation} ({MEANING[relation]}), over {spent['rounds']} rounds"
    )
