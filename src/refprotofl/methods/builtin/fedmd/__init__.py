"""FedMD (Li and Wang 2019): its keys and costs."""

from typing import TYPE_CHECKING

from pydantic import Field, PositiveInt

from refprotofl.experiment import Count, Rate, Table
from refprotofl.methods import Cost, Method, Releases, lazy

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    pretrain_epochs: Count = Field(
        1, description="a client's passes over the labelled public images when it joins, 0 or more"
    )
    digest_epochs: PositiveInt = Field(
        1, description="a client's passes over the public images with the consensus of the last round, 1 or more"
    )
    digest_lr: Rate | None = Field(None, description="learning rate of these passes; train.lr unless given")


class FedMD(Method):
    """private models that agree on logits of public images"""

    name = "fedmd"
    options = Options
    shared = ()
    server = lazy("refprotofl.methods.builtin.fedmd.fedmd:FedMDServer")
    client = lazy("refprotofl.methods.builtin.fedmd.fedmd:FedMDClient")
    notes = (
        "a round begins with the consensus of the last one and ends with new logits, in one exchange; every round uses "
        "all public images, of which the authors draw a part",
    )

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(sample=0, client="its server averages the logits of single clients without noise")

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("D*C", "D*C")

    @staticmethod
    def join_payload(experiment: "Experiment") -> bool:
        return True

    @staticmethod
    def check(experiment: "Experiment") -> None:
        if experiment.public.per_class == 0:
            raise ValueError("has public.per-class = 0, but fedmd teaches over public images: it must be above 0")
