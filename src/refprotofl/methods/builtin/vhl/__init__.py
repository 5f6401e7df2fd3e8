"""VHL (Tang et al. 2022): its keys and its virtual classes."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PositiveInt

from refprotofl.core import InputError
from refprotofl.experiment import Count, Table, Weight
from refprotofl.experiment.keys import at_most
from refprotofl.inputs import IMAGE
from refprotofl.methods import Releases, lazy, releases_of_weights
from refprotofl.methods.builtin.fedavg import FedAvg

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    generator: Literal["gaussian", "conv"] = Field(
        "gaussian", description="source of the virtual images: enlarged noise or random decoders"
    )
    per_class: Annotated[PositiveInt, at_most(10_000)] | None = Field(
        None, description="virtual images of each class, 1 or more; 200 up to 10 classes and 50 above unless given"
    )
    alpha: Weight = Field(1.0, description="weight of the virtual classification, 0 or more")
    w_align: Weight = Field(1.0, description="weight of the alignment of natural to virtual features, 0 or more")
    w_virtual: Weight = Field(0.1, description="weight of the contrast among virtual features, 0 or more")
    align_epochs: Count = Field(5, description="local epochs of a round with alignment and contrast, 0 or more")


class VHL(FedAvg):
    """FedAvg with a set of noise that draws all clients' features together"""

    name = "vhl"
    options = Options
    client = lazy("refprotofl.methods.builtin.vhl.vhl:VHLClient")
    notes = (
        "the authors' virtual images are from an untrained StyleGAN; here from enlarged noise or small random decoders",
        "with 100 classes the authors' script has 500 virtual images of each; here it is 50 unless per-class is set",
        "the authors count the prediction of a virtual class as an error; here only natural classes are predicted",
    )

    @staticmethod
    def releases(experiment: "Experiment") -> Releases:
        return Releases(
            sample="its contrastive loss compares the samples of a batch with each other, so that no sample's gradient "
            "can be bounded by itself",
            client=releases_of_weights(experiment).client,
        )

    @staticmethod
    def check_input(experiment: "Experiment") -> None:
        kind = experiment.known_input.input_kind
        if kind.name != IMAGE:
            raise InputError(f'method = "vhl" needs images: its virtual set is made of pictures, not of {kind.plural}.')

    @staticmethod
    def extra_outputs(experiment: "Experiment") -> int:
        """Return a virtual class for every natural one."""
        return experiment.known_input.num_classes
