"""FedAvg (McMahan et al. 2017): weights averaged by data size.

With `share = "full"` all weights, with `share = "adapter"` feature layer and head: then it is LG-FedAvg.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from refprotofl.experiment import Experiment
from refprotofl.methods import sharing
from refprotofl.methods.base import Client, Cohort, Server
from refprotofl.methods.training import Samples, train
from refprotofl.models import Parts, SplitModel
from refprotofl.wire import Message
from refprotofl.wire.ledger import Kind


class FedAvgServer(Server):
    kinds: ClassVar[Mapping[str, Kind]] = sharing.KINDS
    sends_weights: ClassVar[bool] = True

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        super().__init__(experiment, model, public, parts)
        self.shared = model.read(parts)  # (P,)

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared", "samples")

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        self.shared = sharing.averaged_training(self, cohort, self.shared)

    def evaluation(self) -> Message:
        return {"shared": self.shared}

    def global_model(self) -> SplitModel | None:
        return sharing.global_model(self, self.shared)


class FedAvgClient(Client):
    def train(self, round: int, message: Message) -> Message:
        received = sharing.load_shared(self, message)
        train(self.model, self.training_samples(), self.experiment.train, self.stream("batches", round))
        return sharing.write_update(self, round, received, self.keep_trained(round))

    def evaluate(self, round: int, message: Message) -> Message:
        return self.score(round, message["shared"])  # type: ignore[arg-type]
