"""FedPAC (Xu et al. 2023): its keys and costs."""

from typing import TYPE_CHECKING

from pydantic import Field, PositiveInt

from refprotofl.experiment import Rate, Table, Weight
from refprotofl.methods import Cost, Releases, lazy
from refprotofl.methods.builtin.fedper import FedPer

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    align: Weight = Field(1.0, description="weight of the alignment to the prototypes, 0 or more")
    head_epochs: PositiveInt = Field(1, description="passes that train the head alone, 1 or more")
    head_lr: Rate = Field(0.1, description="the head's learning rate, above 0")


class FedPAC(FedPer):
    """shared body aligned to common prototypes, each client's head mixed from all heads"""

    name = "fedpac"
    options = Options
    server = lazy("refprotofl.methods.builtin.fedpac.fedpac:FedPACServer")
    client = lazy("refprotofl.methods.builtin.fedpac.fedpac:FedPACClient")
    notes = ("the head's learning rate of 0.1 meets the momentum of [train], 0.9; the authors use 0.5",)

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(
            sample="the statistics by which it mixes heads are made of samples, without noise",
            client="every client is sent a mixture of single clients' heads",
        )

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("P + C*(m + 1) + C*m + C + C*m + 1", "P + C*m + C*(m + 1)")

    @staticmethod
    def local_epochs(experiment: "Experiment") -> int:
        return int(experiment.fedpac.head_epochs + experiment.train.passes)
