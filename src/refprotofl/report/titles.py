"""What a run is called where people read of it."""

from refprotofl.basics.escapes import for_terminal
from refprotofl.basics.units import counted
from refprotofl.experiment import Experiment


def title(experiment: Experiment) -> str:
    spread = f"Dirichlet {experiment.alpha:g}" if experiment.partition == "dirichlet" else experiment.partition
    clients, rounds = counted(experiment.clients, "client"), counted(experiment.rounds, "round")
    what = for_terminal(f"{experiment.method} on {experiment.dataset}")
    return f"{what}: {clients}, {spread}, {rounds}, seed {experiment.seed}"
