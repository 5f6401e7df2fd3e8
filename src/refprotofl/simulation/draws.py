"""Who takes part in a round, and who is scored."""

from refprotofl.basics.streams import stream
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
