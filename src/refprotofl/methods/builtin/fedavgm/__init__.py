"""FedAvgM (Hsu et al. 2019): its keys."""

from typing import Annotated

from pydantic import Field

from refprotofl.experiment import Rate, Table
from refprotofl.methods import lazy
from refprotofl.methods.builtin.fedavg import FedAvg


class Options(Table):
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.9, description="the server's momentum, from 0 to below 1")
    server_lr: Rate = Field(1.0, description="the server's learning rate, above 0")


class FedAvgM(FedAvg):
    """FedAvg with momentum at the server"""

    name = "fedavgm"
    options = Options
    server = lazy("refprotofl.methods.builtin.fedavgm.fedavgm:FedAvgMServer")
