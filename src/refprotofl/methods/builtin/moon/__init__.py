"""MOON (Li et al. 2021): its keys."""

from pydantic import Field

from refprotofl.experiment import Rate, Table, Weight
from refprotofl.methods import lazy
from refprotofl.methods.builtin.fedavg import FedAvg


class Options(Table):
    weight: Weight = Field(1.0, description="weight of the contrastive loss (mu), 0 or more; 0 is FedAvg")
    temperature: Rate = Field(0.5, description="of the contrastive loss, above 0")


class Moon(FedAvg):
    """FedAvg with contrast between the received and the last own model"""

    name = "moon"
    options = Options
    client = lazy("refprotofl.methods.builtin.moon.moon:MoonClient")
    stateful = True
    notes = ("the contrast is taken in the embedding, a linear layer with ReLU; the authors add a head of two layers",)
