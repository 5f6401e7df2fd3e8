"""FedPer (Arivazhagan et al. 2019): FedAvg of the body; every client keeps its head."""

from typing import TYPE_CHECKING

from refprotofl.core.parts import BODY
from refprotofl.methods.builtin.fedavg import CLIENT, SERVER
from refprotofl.methods.declaration import Declaration, releases_of_weights

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class FedPer(Declaration):
    """shared body, private heads"""

    name = "fedper"
    server, client = SERVER, CLIENT
    shared = BODY
    releases = staticmethod(releases_of_weights)

    @staticmethod
    def check(experiment: "Experiment") -> None:
        if experiment.share == "full":
            raise ValueError(f'has share = "full", but {experiment.method} keeps its heads private: leave share out')
