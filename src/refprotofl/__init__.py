"""Federated learning over thin links.

from refprotofl import Experiment, run
finished = run(Experiment(dataset="digits", rounds=5, min_size=10, model={"name": "mlp"}))
print(finished.summary["accuracy"])
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment
    from refprotofl.simulation.run import run

__all__ = ["Experiment", "run"]


def __getattr__(name: str) -> Any:
    """`run` brings torch, which takes seconds to import: only who asks for it waits."""
    if name == "Experiment":
        from refprotofl.experiment import Experiment

        return Experiment
    if name == "run":
        from refprotofl.simulation.run import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
