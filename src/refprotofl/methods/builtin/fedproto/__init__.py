"""FedProto (Tan et al. 2022): its keys and costs."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from refprotofl.experiment import Switch, Table, Weight
from refprotofl.methods import BY_HOLDERS, Cost, Method, Releases, lazy

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    weight: Weight = Field(1.0, description="weight of the alignment to the prototypes, 0 or more")
    reduction: Literal["mse", "squared"] = Field(
        "mse", description="the squared distance averaged over the embedding, or summed over it"
    )
    weighting: Literal["uniform", "count"] = "uniform"
    retain: Switch = Field(True, description="whether a class that no client holds keeps its last prototype")
    collect: Literal["post-train", "running"] = Field(
        "post-train", description="prototypes of the trained model, or made during the last local epoch"
    )


class FedProto(Method):
    """only class prototypes, averaged"""

    name = "fedproto"
    options = Options
    shared = ()
    server = lazy("refprotofl.methods.builtin.fedproto.fedproto:FedProtoServer")
    client = lazy("refprotofl.methods.builtin.fedproto.fedproto:FedProtoClient")

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(
            sample=1 if experiment.fedproto.collect == "post-train" else "running prototypes are not noised",
            client=BY_HOLDERS,
        )

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("C*m", "C*m")
