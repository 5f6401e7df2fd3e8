"""FedAvg (McMahan et al. 2017), and FedAvg of the adapter alone."""

from typing import Any, ClassVar

from refprotofl.core import ADAPTER
from refprotofl.methods import ByShare, Method, lazy, releases_of_weights


class FedAvg(Method):
    """weights averaged by data size"""

    name = "fedavg"
    server = lazy("refprotofl.methods.builtin.fedavg.fedavg:FedAvgServer")
    client = lazy("refprotofl.methods.builtin.fedavg.fedavg:FedAvgClient")
    shared: ClassVar[Any] = ByShare("full")
    releases = staticmethod(releases_of_weights)


class LgFedAvg(FedAvg):
    """private backbones, averaged adapter"""

    name = "lg-fedavg"
    shared = ADAPTER
