"""Who takes part in a round, and who is scored."""

from collections.abc import Sequence

from refprotofl.core.streams import stream
from refprotofl.experiment import Experiment


def draw_cohort(experiment: Experiment, round: int) -> list[int]:
    """The clients of a round: drawn from the seed and the round alone, so every method sees the same."""
    chosen = stream(experiment.seed, "cohort", round=round).choice(
        experiment.clients, experiment.cohort_size, replace=False
    )
    return sorted(chosen.tolist())


def draw_evaluated(experiment: Experiment) -> list[int]:
    """The clients whose models are scored: the same throughout a run."""
    if experiment.evaluate.clients == "all":
        return list(range(experiment.clients))
    chosen = stream(experiment.seed, "evaluated").choice(experiment.clients, experiment.evaluate.clients, replace=False)
    return sorted(chosen.tolist())


def draw_lost(experiment: Experiment, round: int, phase: str, clients: Sequence[int]) -> list[int]:
    """The clients that are lost in a phase: each drawn by itself, so that nobody's loss depends on who else is asked.

    A round is never left empty: if all would be lost, the one with the lowest draw is not.
    """
    draws = {
        client: float(stream(experiment.seed, f"dropout/{phase}", client=client, round=round).random())
        for client in clients
    }
    lost = [client for client in clients if draws[client] >= 1 - experiment.dropout]
    return sorted(lost, key=draws.__getitem__)[1:] if len(lost) == len(clients) else lost
