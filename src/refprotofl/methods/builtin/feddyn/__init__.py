"""FedDyn (Acar et al. 2021): its keys."""

from pydantic import Field

from refprotofl.experiment import Table, Weight
from refprotofl.methods import lazy
from refprotofl.methods.builtin.fedavg import FedAvg


class Options(Table):
    alpha: Weight = Field(0.1, description="weight of the dynamic regulariser, 0 or more; 0 is FedAvg")


class FedDyn(FedAvg):
    """FedAvg with a regulariser that aligns the clients' optima"""

    name = "feddyn"
    options = Options
    server = lazy("refprotofl.methods.builtin.feddyn.feddyn:FedDynServer")
    client = lazy("refprotofl.methods.builtin.feddyn.feddyn:FedDynClient")
    stateful = True
    changes_once = "the server sums up every change once"
    notes = (
        "the mean is weighted by data size; the authors' code instead divides alpha by a client's share of the data",
    )
