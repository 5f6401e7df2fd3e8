"""SCAFFOLD (Karimireddy et al. 2020): its keys and costs."""

from typing import TYPE_CHECKING

from pydantic import Field

from refprotofl.experiment import Rate, Table
from refprotofl.methods import Cost, Releases, lazy
from refprotofl.methods.builtin.fedavg import FedAvg

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    server_lr: Rate = Field(1.0, description="the server's learning rate, above 0")


class Scaffold(FedAvg):
    """FedAvg with control variates against client drift"""

    name = "scaffold"
    options = Options
    server = lazy("refprotofl.methods.builtin.scaffold.scaffold:ScaffoldServer")
    client = lazy("refprotofl.methods.builtin.scaffold.scaffold:ScaffoldClient")
    cost = Cost("P", "2*P")
    stateful = True
    changes_once = "a variate is made of the change of one round"
    sgd_only = "a client's variate is its change divided by the total weight with which SGD's gradients enter it"
    notes = (
        "the authors' clients send their new variates, too, so 2 P up; here the server computes them from the changes",
        "with momentum the variates divide by the total weight of the gradients instead of the number of steps",
    )

    @staticmethod
    def check(experiment: "Experiment") -> None:
        if experiment.train.grad_clip:
            raise ValueError(
                f"has train.grad-clip = {experiment.train.grad_clip:g}, but scaffold computes a client's variate from "
                "its change as if every gradient entered it in full"
            )

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(
            sample=0, client="its variates divide a change by the client's steps, which reveal how many samples it has"
        )
