"""FedNova (Wang et al. 2020): its keys and costs."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from refprotofl.experiment import Table, Weight
from refprotofl.methods import ByShare, Cost, Method, Releases, lazy

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    mu: Weight = Field(0.0, description="weight of the proximal term, 0 or more")
    server_momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="from 0 to below 1")


class FedNova(Method):
    """FedAvg with updates normalised by local progress"""

    name = "fednova"
    options = Options
    server = lazy("refprotofl.methods.builtin.fednova.fednova:FedNovaServer")
    client = lazy("refprotofl.methods.builtin.fednova.fednova:FedNovaClient")
    shared = ByShare("full")
    sgd_only = "it divides a change by the total weight with which SGD's gradients enter it"
    notes = (
        "with mu above 0 the effective steps are the mean of |a_k|, as for mu = 0; the authors' code takes the number "
        "of steps, which shrinks the server's move with momentum",
    )

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(
            sample=0,
            client="it divides a change by the client's progress, which depends on how many samples the client has",
        )

    @staticmethod
    def check(experiment: "Experiment") -> None:
        if experiment.fednova.mu and experiment.train.grad_clip:
            raise ValueError(
                f"has train.grad-clip = {experiment.train.grad_clip:g} and fednova.mu = {experiment.fednova.mu:g}: the "
                "normalisation counts the proximal term in full, and clipping would shorten it"
            )

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("P + 2" if experiment.fednova.mu else "P + 1", "P")
