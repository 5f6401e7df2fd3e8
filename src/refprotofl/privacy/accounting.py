"""Epsilon of a run, from what its experiment says alone: which releases it makes, of what sample, under what noise.

Nothing is measured and nothing is remembered from round to round, so a resumed run counts all its rounds. The bounds
are those of Renyi differential privacy, by Google's dp-accounting; its import takes seconds, so it is done late.
"""

import math
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from statistics import median_high
from typing import TYPE_CHECKING, Any, Literal, NotRequired

from typing_extensions import TypedDict

from refprotofl.core.errors import InputError
from refprotofl.core.parts import ALL
from refprotofl.experiment import Experiment
from refprotofl.methods.catalogue import find_method
from refprotofl.privacy.ledger import planned

if TYPE_CHECKING:
    from dp_accounting import DpEvent

# Of a client's samples: one is exchanged for one that adds nothing, so that their number stays and may be known.
# Of the clients: one is exchanged for any other.
Relation = Literal["zero-out-one", "replace-one"]


class Spent(TypedDict):
    """What stands beside an accuracy; without the unit and the relation an epsilon says nothing."""

    unit: Literal["sample", "client"]
    relation: Relation
    epsilon: float | None  # of samples that of the worst client; None: there is no bound, as the noise is 0
    epsilon_median: NotRequired[float | None]  # of samples that of the median client
    delta: float
    noise: float
    clip: float
    rounds: int


def check_accountant(experiment: Experiment) -> None:
    """Before anything is computed: whether epsilon will be told at the end."""
    if experiment.privacy.unit != "none" and find_spec("dp_accounting") is None:
        raise InputError(
            f'privacy.unit = "{experiment.privacy.unit}" needs the accountant: pip install "refprotofl[privacy]".'
        )


def check_defined(experiment: Experiment) -> None:
    """Refuses a unit that the method does not know how to protect."""
    unit = experiment.privacy.unit
    if unit == "none":
        return
    method = find_method(experiment.method)
    releases = method.releases(experiment)
    why = releases.sample if unit == "sample" else releases.client
    if not isinstance(why, str) and method.pooled:
        why = "its server is given all clients' samples as they are"
    if not isinstance(why, str) and unit == "sample" and not method.depends_on_rounds:
        closing = [verb for verb, use in method.sample_uses(experiment).items() if use.closing]
        if closing:  # a longer run would close twice, and be charged for it once
            why = f"it uses samples in {closing[0]!r}, after the last round, without depends_on_rounds = True"
    if isinstance(why, str):
        raise InputError(f'privacy.unit = "{unit}" is not defined for method = {experiment.method!r}: {why}.')


def spent(experiment: Experiment, rounds: int, sizes: Sequence[int], asked: Sequence[int]) -> Spent | None:
    """After so many rounds; None where nothing is protected.

    `sizes` are how many samples each client trains on, `asked` in how many rounds it was. What a method does when the
    last round is over counts from then on.
    """
    table = experiment.privacy
    if table.unit == "none":
        return None
    told: Spent = {
        "unit": table.unit,
        "relation": RELATIONS[table.unit],
        "epsilon": None,
        "delta": table.delta,
        "noise": table.noise,
        "clip": table.clip,
        "rounds": rounds,
    }
    if table.unit == "client":
        return told | {"epsilon": _bounded(_epsilon_of_clients(experiment, rounds, max(asked)))}
    pairs = list(zip(sizes, asked, strict=True))
    closed = rounds >= experiment.rounds
    found = {pair: _epsilon_of_samples(experiment, *pair, closed) for pair in set(pairs)}
    each = [found[pair] for pair in pairs]
    return told | {"epsilon": _bounded(max(each)), "epsilon_median": _bounded(median_high(each))}


def _bounded(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None


ORDERS: tuple[int, ...] = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)  # fractions need not converge
RELATIONS: dict[str, Relation] = {"sample": "zero-out-one", "client": "replace-one"}


def _epsilon_of_samples(experiment: Experiment, samples: int, rounds: int, closed: bool) -> float:
    """Of one client: every step of its training is a Poisson sample's noised sum, every class mean one over all.

    Each verb counts with what the method declares of it, in every round that the client was asked in; `closed`: what
    follows the last round was asked, too.
    """
    from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

    if experiment.privacy.noise == 0:
        return math.inf if rounds else 0.0
    noised, events = GaussianDpEvent(experiment.privacy.noise), list[tuple[DpEvent, int]]()
    for use in find_method(experiment.method).sample_uses(experiment).values():
        times = int(closed and rounds > 0) if use.closing else rounds
        done = planned(experiment, use, samples)
        events += [(PoissonSampledDpEvent(1 / steps, noised), times * taken) for steps, taken in done.steps.items()]
        events += [(noised, times * done.means)]
    return epsilon([SelfComposedDpEvent(*one) for one in events if one[1]], "zero-out-one", experiment.privacy.delta)


def _epsilon_of_clients(experiment: Experiment, rounds: int, most_asked: int) -> float:
    """A fixed number of clients is drawn, without replacement; to exchange one moves a sum by twice the clip.

    That few are drawn hides who it was, but only where clients keep nothing from round to round: what a state shows of
    earlier draws is not part of the theorem. Else the rounds count in which the client was that was drawn most often.
    """
    from dp_accounting import GaussianDpEvent, SampledWithoutReplacementDpEvent, SelfComposedDpEvent

    if experiment.privacy.noise == 0:
        return math.inf if rounds else 0.0
    sums = find_method(experiment.method).releases(experiment).client
    assert isinstance(sums, int)
    round: DpEvent = SelfComposedDpEvent(GaussianDpEvent(experiment.privacy.noise / 2), sums)
    if experiment.cohort_size < experiment.clients and _forgets(experiment):
        round = SampledWithoutReplacementDpEvent(experiment.clients, experiment.cohort_size, round)
    else:
        rounds = most_asked
    return epsilon([SelfComposedDpEvent(round, rounds)], "replace-one", experiment.privacy.delta)


def _forgets(experiment: Experiment) -> bool:
    """Whether a client keeps no part of the model, no statistics and no unsent rest."""
    method, norm = find_method(experiment.method), experiment.model.norm
    whole = set(method.shared(experiment)) == set(ALL) and norm != "batch-local"
    return whole and method.feedback(experiment) == "none"


def epsilon(events: "Iterable[DpEvent]", relation: Relation, delta: float) -> float:
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
