"""Epsilon of composed noised releases, by Renyi differential privacy with Google's dp-accounting, and its wording.

An epsilon is never shown without its unit, its delta and its relation.

Everything follows from the experiment: nothing is measured or remembered from round to round, so a resumed run counts
all its rounds. Importing dp-accounting takes seconds, so it is imported when epsilon is computed.
"""

import math
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NotRequired

from typing_extensions import TypedDict

from refprotofl.core import counted, three_figures

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# zero-out-one: one sample of a client is exchanged for one that adds nothing. Their number stays and may be known.
# replace-one: one client is exchanged for any other.
Relation = Literal["zero-out-one", "replace-one"]

ORDERS: tuple[int, ...] = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)  # fractions need not converge


class Spent(TypedDict):
    """The privacy loss of a run. Without the unit and the relation an epsilon means nothing."""

    unit: Literal["sample", "client"]
    relation: Relation
    epsilon: float | None  # for samples, of the worst client; None: no bound, as the noise is 0
    epsilon_median: NotRequired[float | None]  # for samples, of the median client
    delta: float
    noise: float
    clip: float
    rounds: int


def accountant_installed() -> bool:
    return find_spec("dp_accounting") is not None


def bounded(epsilon: float) -> float | None:
    """Return epsilon, or None if it is infinite."""
    return epsilon if math.isfinite(epsilon) else None


def epsilon(events: "Iterable[DpEvent]", relation: Relation, delta: float) -> float:
    """Return the epsilon of the composed events at this delta."""
    accountant = _accountant(relation)
    for event in events:
        accountant.compose(event)
    return float(accountant.get_epsilon(delta))


def _accountant(relation: Relation) -> Any:
    kind, neighbours = _kinds()
    return kind(ORDERS, neighbours[relation])


@cache
def _kinds() -> tuple[Any, dict[Relation, Any]]:
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    relations: dict[Relation, Any] = {
        "zero-out-one": NeighboringRelation.REPLACE_SPECIAL,
        "replace-one": NeighboringRelation.REPLACE_ONE,
    }
    return RdpAccountant, relations


EXCHANGED = {
    "zero-out-one": "one sample exchanged for one that adds nothing",
    "replace-one": "one client exchanged for another",
}


def epsilon_cell(spent: Spent) -> str:
    """Return epsilon with its unit, for a table cell."""
    return "no bound" if spent["epsilon"] is None else f"{three_figures(spent['epsilon'])} ({spent['unit']})"


def epsilon_meaning(spent: Spent) -> str:
    """Return the meaning of an epsilon of this kind: its unit, delta and relation."""
    owner = " of the client with the largest" if spent["unit"] == "sample" else ""
    relation = spent["relation"]
    return f"by {spent['unit']}{owner}, at delta {spent['delta']:g}, {relation} ({EXCHANGED[relation]})"


def epsilon_sentence(spent: Spent) -> str:
    """Return the privacy loss of a run as a sentence."""
    if spent["epsilon"] is None:
        return f"Privacy by {spent['unit']}: no guarantee, as privacy.noise = 0"
    median = spent.get("epsilon_median")
    of_median = "" if median is None else f" (of the median client {three_figures(median)})"
    epsilon = three_figures(spent["epsilon"])
    return f"Privacy: epsilon {epsilon}{of_median} over {counted(spent['rounds'], 'round')}, {epsilon_meaning(spent)}"
