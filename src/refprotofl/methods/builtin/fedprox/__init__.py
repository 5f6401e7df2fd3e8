"""FedProx (Li et al. 2020): its keys."""

from pydantic import Field

from refprotofl.experiment import Table, Weight
from refprotofl.methods import lazy
from refprotofl.methods.builtin.fedavg import FedAvg


class Options(Table):
    mu: Weight = Field(0.01, description="weight of the proximal term, 0 or more")


class FedProx(FedAvg):
    """FedAvg with a proximal term towards the received weights"""

    name = "fedprox"
    options = Options
    client = lazy("refprotofl.methods.builtin.fedprox.fedprox:FedProxClient")
