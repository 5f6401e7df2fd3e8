"""FedProtoKD (Siddika, Hossen et al. 2025): its keys and costs."""

from typing import TYPE_CHECKING

from pydantic import Field, PositiveInt

from refprotofl.experiment import Rate, Table, Weight
from refprotofl.methods import Cost, Method, Releases, lazy

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    weight: Weight = Field(1.0, description="weight of the alignment to the prototypes, 0 or more")
    distil: Weight = Field(1.0, description="weight of the distillation from the server, 0 or more")
    temperature: Rate = Field(3.0, description="of the distilled logits, above 0")
    margin: Weight = Field(100.0, description="largest margin between prototypes, 0 or more")
    server_lr: Rate = Field(0.01, description="the server's learning rate, above 0")
    server_epochs: PositiveInt = Field(100, description="the server's passes over a round's prototypes, 1 or more")
    server_batch: PositiveInt = Field(64, description="prototypes or public images in a batch, 1 or more")
    model_epochs: PositiveInt = Field(5, description="the server model's passes over the public images, 1 or more")


class FedProtoKD(Method):
    """logits and prototypes of public images, distilled"""

    name = "fedprotokd"
    options = Options
    shared = ()
    server = lazy("refprotofl.methods.builtin.fedprotokd.fedprotokd:FedProtoKDServer")
    client = lazy("refprotofl.methods.builtin.fedprotokd.fedprotokd:FedProtoKDClient")
    notes = ("reconstructed from the paper's abstract and summaries of it; formulas and defaults are this project's",)

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(sample=0, client="its server trains on the logits and embeddings of single clients")

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("D*(C + m)", "D*(C + 1) + C*m")
