"""FedAdam (Reddi et al. 2021): its keys, which FedYogi has as well."""

from typing import Annotated

from pydantic import Field

from refprotofl.experiment import Rate, Table
from refprotofl.methods import lazy
from refprotofl.methods.builtin.fedavg import FedAvg

Decay = Annotated[float, Field(ge=0, lt=1)]


class Options(Table):
    server_lr: Rate = Field(0.01, description="the server's learning rate, above 0")
    beta1: Decay = Field(0.9, description="decay of the mean of the changes, from 0 to below 1")
    beta2: Decay = Field(0.99, description="decay of the mean of their squares, from 0 to below 1")
    tau: Rate = Field(1e-3, description="added to the root of the mean square, above 0: the larger, the less adaptive")


class FedAdam(FedAvg):
    """FedAvg with Adam at the server"""

    name = "fedadam"
    options = Options
    server = lazy("refprotofl.methods.builtin.fedadam.fedadam:FedAdamServer")
    notes = (
        "as in the paper's algorithm the mean square starts at tau^2 and there is no bias correction; the authors' "
        "experiments used Keras's Adam, which starts at 0 and corrects",
    )
