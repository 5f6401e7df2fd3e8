"""What a run is called where people read of it."""

from pathlib import Path

from refprotofl.core.escaping import for_terminal
from refprotofl.core.units import counted
from refprotofl.experiment import Experiment


def title(experiment: Experiment, *, mailed: bool = False) -> str:
    """`mailed`: without where the data lie, which is nobody's business."""
    spread = f"Dirichlet {experiment.alpha:g}" if experiment.partition == "dirichlet" else experiment.partition
    clients, rounds = counted(experiment.clients, "client"), counted(experiment.rounds, "round")
    dataset = without_place(experiment.dataset) if mailed else experiment.dataset
    what = for_terminal(f"{experiment.method} on {dataset}")
    return f"{what}: {clients}, {spread}, {rounds}, seed {experiment.seed}"


def without_place(dataset: str) -> str:
    """Of a path its last part."""
    return dataset if dataset.startswith("hf:") else Path(dataset).name
