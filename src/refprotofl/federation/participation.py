"""The clients that take part in each round, and what they spend: optimiser steps and privacy."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from refprotofl.core import stream
from refprotofl.experiment import Experiment
from refprotofl.methods import find_method
from refprotofl.privacy import Spent, create_mechanism


@dataclass(frozen=True)
class Presence:
    """The clients that can be asked now, and those that are away and may be back before the deadline."""

    here: Collection[int]
    expected: Collection[int]


def draw_cohort(experiment: Experiment, round: int, presence: Presence | None = None) -> list[int]:
    """Return the clients of a round, drawn from the seed and the round alone, so that every method sees the same.

    With `presence` a client that is away is replaced by one that is here, and `over-select` adds others. If there are
    too few, those that may be back are asked, too; with fewer than `min-replies`, all that were drawn.
    """
    draw = stream(experiment.seed, "cohort", round=round)
    chosen: list[int] = draw.choice(experiment.clients, experiment.cohort_size, replace=False).tolist()
    if presence is None:
        return sorted(chosen)
    others = stream(experiment.seed, "cohort/others", round=round).permutation(experiment.clients).tolist()
    order = list(dict.fromkeys([*chosen, *others]))
    here = [client for client in order if client in presence.here]
    asked = [*here, *(client for client in order if client in presence.expected)][: experiment.asked_size]
    return sorted(asked if len(asked) >= experiment.min_replies else {*asked, *chosen})


def draw_evaluated(experiment: Experiment) -> list[int]:
    """Return the clients whose models are scored: the same throughout a run."""
    if experiment.evaluate.clients == "all":
        return list(range(experiment.clients))
    chosen = stream(experiment.seed, "evaluated").choice(experiment.clients, experiment.evaluate.clients, replace=False)
    return sorted(chosen.tolist())


def draw_lost(experiment: Experiment, round: int, phase: str, clients: Sequence[int]) -> list[int]:
    """Return the clients that are lost in a phase, each drawn by itself, whichever others are asked.

    A round is never left empty: if all would be lost, the one with the lowest draw is not.
    """
    draws = {
        client: float(stream(experiment.seed, f"dropout/{phase}", client=client, round=round).random())
        for client in clients
    }
    lost = [client for client in clients if draws[client] >= 1 - experiment.dropout]
    return sorted(lost, key=draws.__getitem__)[1:] if len(lost) == len(clients) else lost


def count_steps(experiment: Experiment, sizes: Iterable[int], closing: Iterable[int]) -> int:
    """Return the optimiser steps of clients with these numbers of samples in a round.

    `closing`: the numbers of own samples of the clients that train once more after the last round.
    """
    method, after = find_method(experiment.method), sum(map(create_mechanism(experiment).finetune_steps, closing))
    return sum(method.steps_of_round(experiment, size) for size in sizes) + after


def count_spent(experiment: Experiment, sizes: Sequence[int], rounds: int) -> Spent | None:
    """Return the privacy that clients of these sizes spent in the first rounds, whose cohorts follow from the seed."""
    asked = Counter(client for round in range(1, rounds + 1) for client in draw_cohort(experiment, round))
    participations = [asked[client] for client in range(experiment.clients)]
    return create_mechanism(experiment).spent(rounds, sizes, participations)
