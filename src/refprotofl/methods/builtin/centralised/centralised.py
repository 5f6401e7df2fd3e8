"""Training without federation on the data of all clients at once: the upper bound. The data leave the clients."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from refprotofl.core import Parts, State, streams, tensor_of
from refprotofl.methods import (
    Client,
    Cohort,
    Dense,
    MessageSchemas,
    Refused,
    Scope,
    Server,
    ServerContext,
    ValidatedMessage,
    augmenter,
    declare,
    train,
)
from refprotofl.methods.common.weights import shared_vector
from refprotofl.models import SplitModel
from refprotofl.wire import Message


class CentralisedServer(Server):
    """Holds all samples itself."""

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        assert context.pooled is not None
        self.pooled = context.pooled
        self.shared = context.model.read(context.parts)  # (P,)
        self.statistics: dict[str, Tensor] = context.model.read_private(
            context.parts
        )  # of batch norm, where there is one

    @classmethod
    def message_schemas(cls, scope: Scope) -> MessageSchemas:
        statistics = scope.model.read_private(scope.parts).items()
        kept = {name: Dense(tuple(value.shape), (value.dtype,)) for name, value in statistics}
        return declare(scope, evaluate={"shared": shared_vector(scope), **kept})

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared",)

    @property
    def state(self) -> State:
        return super().state | self.statistics

    def restore(self, state: State) -> None:
        super().restore(state)
        self.statistics = {name: tensor_of(state, name) for name in self.statistics}

    def round(self, cohort: Cohort) -> None:
        model = self.global_model()
        order = streams.stream(self.experiment.seed, "batches", round=cohort.round)
        steps = self.experiment.train.local_steps * self.context.num_clients  # as all clients would together
        settings = self.experiment.train_in_round(cohort.round).model_copy(update={"local_steps": steps})
        augment = augmenter(
            self.experiment, lambda name: streams.stream(self.experiment.seed, name, round=cohort.round)
        )
        train(model, self.pooled, settings, order, augment=augment)
        self.shared, self.statistics = model.read(self.parts), model.read_private(self.parts)

    def evaluation(self) -> Message:
        return {"shared": self.shared, **self.statistics}

    def global_model(self) -> SplitModel:
        self.model.write(self.parts, self.shared)
        self.model.write_private(self.statistics)
        return self.model


class CentralisedClient(Client):
    """Only scores the one model, on the whole test set and on its own class mix."""

    verbs: ClassVar[tuple[str, ...]] = ("evaluate",)

    def train(self, round: int, message: ValidatedMessage) -> Message:
        raise Refused("all training is the server's")

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        self.state |= {name: message.tensor(name) for name in message if name in self.state}
        return self.score(round, message.tensor("shared"))

    @classmethod
    def load_final(cls, model: SplitModel, parts: Parts, server: State, own: State) -> None:
        model.write(parts, tensor_of(server, "shared"))
        model.write_private(server)
