"""FedProx (Li et al. 2020): what it may be told."""

from pydantic import Field

from refprotofl.experiment.keys import Table, Weight
from refprotofl.methods.builtin.fedavg import SERVER
from refprotofl.methods.declaration import Declaration, releases_of_weights


class Options(Table):
    mu: Weight = Field(0.01, description="weight of the proximal term, 0 or more")


class FedProx(Declaration):
    """FedAvg with a pull towards the received weights"""

    name = "fedprox"
    options = Options
    server = SERVER
    client = "refprotofl.methods.builtin.fedprox.fedprox:FedProxClient"
    releases = staticmethod(releases_of_weights)
