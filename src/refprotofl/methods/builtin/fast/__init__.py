"""FAST (Li et al. 2025): its keys and warnings."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PositiveInt

from refprotofl.core import InputError, is_reference
from refprotofl.experiment import Switch, Table
from refprotofl.inputs import IMAGE
from refprotofl.methods import ByShare, Method, Releases, lazy

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    seed_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.01, description="share of the samples labelled by hand at the start, above 0 and below 1"
    )
    query_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.04, description="share of the weakly labelled samples whose labels are asked for, 0 to 1"
    )
    neighbours: PositiveInt = Field(10, description="labelled neighbours that vote for a weak label, 1 or more")
    uncertainty: Literal["norm", "entropy", "confidence", "margin"] = "norm"
    class_aware: Switch = Field(True, description="whether the queries are spread over the weak classes")
    knn: Literal["pooled", "per-client"] = Field(
        "pooled", description="neighbours among all clients' labelled samples, or among the client's own"
    )
    embedder: str = Field("pca", description="pca, open_clip:NAME, or module:function for an encoder of your own")


class FAST(Method):
    """FedAvg on few labels made by hand and many weak ones"""

    name = "fast"
    options = Options
    server = lazy("refprotofl.methods.builtin.fast.fast:FASTServer")
    client = lazy("refprotofl.methods.builtin.fast.fast:FASTClient")
    shared = ByShare("full")
    simulation_only = (
        "it sends every client a pool of others' embeddings, from which their images can be rebuilt with the basis of "
        "the PCA"
    )
    notes = (
        "the authors' encoder is a foundation model; here it is PCA of raw pixels by default, which makes far fewer "
        "weak labels right",
        "the authors' code asks for 40 % of the labels and partitions the data by the mixed labels; here 4 % by "
        "default, and by the true labels",
        "with knn = pooled and the PCA embedder clients get embeddings from which others' images can be rebuilt",
        "labels made by hand are taken from the data set; how many is among the facts of a run",
    )

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(
            sample="the labels of some samples are made from the embeddings of others",
            client="it sends embeddings and labels of single samples to all, or makes labels of them",
        )

    @staticmethod
    def check_input(experiment: "Experiment") -> None:
        kind, embedder = experiment.known_input.input_kind, experiment.fast.embedder
        if is_reference(embedder) and not embedder.startswith("open_clip:"):
            return
        if kind.name != IMAGE and (embedder != "pca" or not kind.normalised):
            raise InputError(
                f'method = "fast": fast.embedder = "{embedder}" has no distances between {kind.plural}; name an '
                "encoder of your own as module:function."
            )

    @staticmethod
    def warnings(experiment: "Experiment") -> tuple[str, ...]:
        table: Options = experiment.fast
        if table.knn != "pooled":
            return ()
        rebuilt = "; with the PCA's basis a client can rebuild them as images" if table.embedder == "pca" else ""
        return (
            'fast.knn = "pooled" sends every client the embeddings of all hand-labelled samples'
            f'{rebuilt}: for simulation only. fast.knn = "per-client" keeps them local.',
        )
