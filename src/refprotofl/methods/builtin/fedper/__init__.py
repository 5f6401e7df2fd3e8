"""FedPer (Arivazhagan et al. 2019): FedAvg of the body; every client keeps its head."""

from typing import TYPE_CHECKING

from refprotofl.core import BODY
from refprotofl.methods.builtin.fedavg import FedAvg

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


class FedPer(FedAvg):
    """shared body, private heads"""

    name = "fedper"
    shared = BODY
    notes = (
        "no code of the authors is known; their paper varies the number of private layers, here it is the last layer "
        "alone",
    )

    @staticmethod
    def check(experiment: "Experiment") -> None:
        if experiment.share == "full":
            raise ValueError(f'has share = "full", but {experiment.method} keeps its heads private: leave share out')
