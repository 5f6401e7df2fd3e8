"""FedRep (Collins et al. 2021): its keys."""

from typing import TYPE_CHECKING

from pydantic import Field, PositiveInt

from refprotofl.experiment import Table
from refprotofl.methods import lazy
from refprotofl.methods.builtin.fedper import FedPer

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class Options(Table):
    head_epochs: PositiveInt = Field(1, description="passes that train the head alone, 1 or more")
    body_epochs: PositiveInt | None = Field(
        None, description="passes that train the body alone, 1 or more; as many as train.local-epochs unless given"
    )


class FedRep(FedPer):
    """shared body, private heads, trained in turn"""

    name = "fedrep"
    options = Options
    client = lazy("refprotofl.methods.builtin.fedrep.fedrep:FedRepClient")
    notes = (
        "the authors train the head for 10 epochs in every round and for 10 or more after the last one; here for "
        "head-epochs, 1 by default, and not after the last round",
    )

    @staticmethod
    def local_epochs(experiment: "Experiment") -> int:
        options = experiment.fedrep
        return int(options.head_epochs + (options.body_epochs or experiment.train.passes))

    @staticmethod
    def local_steps(experiment: "Experiment") -> int:
        return 0 if experiment.fedrep.body_epochs else experiment.train.local_steps
