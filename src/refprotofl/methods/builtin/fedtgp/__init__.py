"""FedTGP (Zhang et al. 2024): its keys and costs."""

from typing import TYPE_CHECKING

from pydantic import Field, PositiveInt

from refprotofl.experiment import Rate, Table, Weight
from refprotofl.methods import Cost, Method, Releases, lazy

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    weight: Weight = Field(10.0, description="weight of the alignment to the prototypes, 0 or more")
    margin: Weight = Field(100.0, description="largest margin between prototypes, 0 or more")
    server_lr: Rate = Field(0.01, description="the server's learning rate, above 0")
    server_epochs: PositiveInt = Field(100, description="the server's passes over a round's prototypes, 1 or more")
    server_batch: PositiveInt = Field(10, description="prototypes in a batch, 1 or more")


class FedTGP(Method):
    """only class prototypes, trained apart by the server"""

    name = "fedtgp"
    options = Options
    shared = ()
    server = lazy("refprotofl.methods.builtin.fedtgp.fedtgp:FedTGPServer")
    client = lazy("refprotofl.methods.builtin.fedtgp.fedtgp:FedTGPClient")

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(sample=1, client="its server trains on the prototypes of single clients")

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("C*m", "C*m")
