"""FedGH (Yi et al. 2023): its keys and costs."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field, PositiveInt

from refprotofl.core import HEAD
from refprotofl.experiment import Rate, Table
from refprotofl.methods import Cost, Method, Releases, lazy

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    server: Literal["paper", "official", "frozen"] = Field(
        "paper", description="training of the header: as in the paper, in one sequential pass, or none"
    )
    server_lr: Rate = Field(0.01, description="the server's learning rate, above 0")
    server_epochs: PositiveInt = Field(100, description="the server's passes over a round's prototypes, 1 or more")
    server_batch: PositiveInt = Field(64, description="prototypes in a batch, 1 or more")
    weighting: Literal["uniform", "count"] = "uniform"


class FedGH(Method):
    """a head trained on the server from prototypes"""

    name = "fedgh"
    options = Options
    shared = HEAD
    server = lazy("refprotofl.methods.builtin.fedgh.fedgh:FedGHServer")
    client = lazy("refprotofl.methods.builtin.fedgh.fedgh:FedGHClient")
    notes = (
        "the authors clip client gradients to norm 50 and make one clipped pass at the server; here clients do not "
        'clip, and the server makes 100 passes without clipping unless server = "official"',
        "the authors' code never applies the server's steps to the header (server = \"frozen\" here), and scores each "
        "client with the header that it trained itself, not with the server's",
    )

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(sample=1, client="its server trains on the prototypes of single clients")

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("C*(m + 1)", "C*(m + 1)")
