"""FedDF (Lin et al. 2020): its keys and costs."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from refprotofl.core import ALL
from refprotofl.experiment import Rate, Table
from refprotofl.methods import Cost, Releases, lazy
from refprotofl.methods.builtin.fedavg import FedAvg

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    upload: Literal["weights", "logits"] = Field(
        "weights", description="what clients send: their weights, or their logits of the public images alone"
    )
    temperature: Rate = Field(1.0, description="of the distilled logits, above 0")
    server_lr: Rate = Field(0.001, description="learning rate of the server's Adam, above 0")
    server_epochs: PositiveInt = Field(20, description="the server's passes over the public images in a round")
    server_batch: PositiveInt = Field(64, description="public images in a batch, 1 or more")


class FedDF(FedAvg):
    """FedAvg, and distillation of the clients' ensemble at the server"""

    name = "feddf"
    options = Options
    shared: ClassVar[Any] = ALL
    server = lazy("refprotofl.methods.builtin.feddf.feddf:FedDFServer")
    client = lazy("refprotofl.methods.builtin.feddf.feddf:FedDFClient")
    changes_once = "the server runs the model of each client, which a correction of its last change is not"
    notes = (
        "the server distils for a fixed number of passes at a constant rate; the authors stop by validation data, at a "
        "rate that falls with a cosine",
    )

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(sample=0, client="its server distils from the models or logits of single clients")

    @staticmethod
    def cost(experiment: "Experiment") -> Cost:
        return Cost("D*C" if experiment.feddf.upload == "logits" else "P", "P")

    @staticmethod
    def join_payload(experiment: "Experiment") -> bool:
        return bool(experiment.public.train_on or experiment.feddf.upload == "logits")

    @staticmethod
    def check(experiment: "Experiment") -> None:
        if experiment.public.per_class == 0:
            raise ValueError("has public.per-class = 0, but feddf distils over public images: it must be above 0")
        if experiment.model.norm == "batch-local":
            raise ValueError(
                'has model.norm = "batch-local", but feddf runs the clients\' models at the server, without '
                'their batch statistics: use model.norm = "group" or "none"'
            )
        if experiment.feddf.upload == "logits" and experiment.compress.enabled:
            raise ValueError(
                f'has {experiment.compress.setting}, but with feddf.upload = "logits" clients send no weights that it '
                "could shorten: leave compress out"
            )
