"""FedPCL (Tan et al. 2022b): its keys and costs."""

from typing import TYPE_CHECKING

from pydantic import Field

from refprotofl.experiment import Rate, Table
from refprotofl.methods import Cost, Method, Releases, lazy

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    temperature: Rate = Field(0.07, description="of the contrastive loss, above 0")


class FedPCL(Method):
    """a frozen backbone, prototypes of all clients in contrast"""

    name = "fedpcl"
    options = Options
    shared = ()
    server = lazy("refprotofl.methods.builtin.fedpcl.fedpcl:FedPCLServer")
    client = lazy("refprotofl.methods.builtin.fedpcl.fedpcl:FedPCLClient")
    notes = (
        "the authors contrast augmented views and have no head; here plain images, and a head trained along with it",
    )

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(
            sample="it makes its first prototypes outside of training and sends each client's to all, without noise",
            client="it sends the prototypes of every single client to all",
        )

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("C*m", "(N + 1)*C*m + N*C")
