"""FedBN (Li et al. 2021): FedAvg of all weights but those of the norm layers."""

from typing import TYPE_CHECKING

from refprotofl.core import WITHOUT_NORMS
from refprotofl.methods.builtin.fedavg import FedAvg

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class FedBN(FedAvg):
    """FedAvg with private norm layers"""

    name = "fedbn"
    shared = WITHOUT_NORMS
    notes = (
        'any norm layer stays private; the authors\' batch norm is model.norm = "batch-local", whose statistics no '
        "method shares",
    )

    @staticmethod
    def warnings(experiment: "Experiment") -> tuple[str, ...]:
        if experiment.model.norm != "none":
            return ()
        return ('model.norm = "none": fedbn finds no norm layers to keep private, unless the backbone is yours',)
