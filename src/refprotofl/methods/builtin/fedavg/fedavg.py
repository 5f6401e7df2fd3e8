"""FedAvg (McMahan et al. 2017): weights averaged by data size.

By default all weights; with `share = "adapter"` feature layer and head: then it is LG-FedAvg.
"""

from collections.abc import Sequence
from typing import ClassVar

from refprotofl.methods import Client, Cohort, MessageSchemas, Scope, Server, ServerContext, ValidatedMessage
from refprotofl.methods.common import weights
from refprotofl.models import SplitModel
from refprotofl.wire import Message


class FedAvgServer(Server):
    sends_weights: ClassVar[bool] = True
    averages: ClassVar[bool] = True

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.shared = context.model.read(context.parts)  # (P,)

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        return weights.message_schemas(scope)

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared", "samples")

    def round(self, cohort: Cohort) -> None:
        self.join_newcomers(cohort)
        self.shared = weights.averaged_training(self, cohort, self.shared)

    def evaluation(self) -> Message:
        return {"shared": self.shared}

    def global_model(self) -> SplitModel | None:
        return self.whole_model(self.shared)


class FedAvgClient(Client):
    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        self.fit(round)
        return weights.write_update(self, round, received, self.keep_trained(round))

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"))
