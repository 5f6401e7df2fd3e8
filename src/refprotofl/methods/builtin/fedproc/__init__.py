"""FedProc (Mu et al. 2023): its keys and costs."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from refprotofl.experiment import Rate, Table
from refprotofl.methods import BY_HOLDERS, ByShare, Cost, Method, Releases, lazy

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    weight: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0, description="share of the contrastive loss at the start, 0 to 1; it falls to 0 in the last round"
    )
    temperature: Rate = Field(0.5, description="of the contrastive loss, above 0")


class FedProc(Method):
    """FedAvg with contrast to global prototypes"""

    name = "fedproc"
    options = Options
    server = lazy("refprotofl.methods.builtin.fedproc.fedproc:FedProcServer")
    client = lazy("refprotofl.methods.builtin.fedproc.fedproc:FedProcClient")
    shared = ByShare("full")
    depends_on_rounds = True
    notes = (
        "reconstructed from what is published of it; temperature and the averaging of prototypes are this project's",
    )

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(sample=1, client=BY_HOLDERS)

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("P + C*m", "P + C*m")
