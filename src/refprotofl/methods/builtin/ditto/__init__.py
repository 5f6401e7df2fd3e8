"""Ditto (Li et al. 2021): its keys."""

from typing import TYPE_CHECKING

from pydantic import Field

from refprotofl.experiment import Table, Weight
from refprotofl.methods import lazy
from refprotofl.methods.builtin.fedavg import FedAvg

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    weight: Weight = Field(
        0.1, description="weight of the pull towards the common model (lambda), 0 or more; 0 is local training"
    )


class Ditto(FedAvg):
    """FedAvg, and a personal model of each client that is pulled towards it"""

    name = "ditto"
    options = Options
    client = lazy("refprotofl.methods.builtin.ditto.ditto:DittoClient")
    notes = ("each client makes twice the passes over its data: for the common model and for its own",)

    @staticmethod
    def local_epochs(experiment: "Experiment") -> int:
        return 2 * experiment.train.passes

    @staticmethod
    def local_steps(experiment: "Experiment") -> int:
        return 2 * experiment.train.local_steps

    @staticmethod
    def check(experiment: "Experiment") -> None:
        if experiment.finetune.passes:
            raise ValueError("has keys of [finetune], but ditto trains a model for each client anyway: leave them out")
