"""No federation: one model on the data of all clients, the upper bound."""

from typing import TYPE_CHECKING

from refprotofl.core import ALL
from refprotofl.methods import Cost, Method, Releases, lazy

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Centralised(Method):
    """no federation: one model on all clients' data"""

    name = "centralised"
    shared = ALL
    pooled = True
    simulation_only = "it trains on all clients' data in one place"
    server = lazy("refprotofl.methods.builtin.centralised.centralised:CentralisedServer")
    client = lazy("refprotofl.methods.builtin.centralised.centralised:CentralisedClient")

    @staticmethod
    def local_steps(experiment: "Experiment") -> int:
        """Return as many steps as all clients would make together: passes over the pooled data are as many, too."""
        return experiment.train.local_steps * experiment.clients

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(
            sample="all samples are in one place, and no client bounds them",
            client="all samples are in one place",
        )

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("0", "0")
