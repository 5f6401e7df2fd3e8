"""FedAvg (McMahan et al. 2017), and the methods that are FedAvg over some parts of the model."""

from refprotofl.core.parts import ADAPTER
from refprotofl.methods.declaration import Declaration, releases_of_weights

SERVER = "refprotofl.methods.builtin.fedavg.fedavg:FedAvgServer"
CLIENT = "refprotofl.methods.builtin.fedavg.fedavg:FedAvgClient"


class FedAvg(Declaration):
    """weights averaged by data size"""

    name = "fedavg"
    server, client = SERVER, CLIENT
    releases = staticmethod(releases_of_weights)


class LgFedAvg(Declaration):
    """private backbones, averaged adapter"""

    name = "lg-fedavg"
    server, client = SERVER, CLIENT
    shared = ADAPTER
    releases = staticmethod(releases_of_weights)
