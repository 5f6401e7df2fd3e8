"""Training without federation on everybody's data at once: the upper bound. The data leave the clients."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from refprotofl.basics import streams
from refprotofl.basics.state import State
from refprotofl.experiment import Experiment
from refprotofl.methods.base import Client, Cohort, Refused, Server
from refprotofl.methods.training import Samples, train
from refprotofl.models import Parts, SplitModel
from refprotofl.wire import Message


class CentralisedServer(Server):
    """Holds all samples itself; `public` is what the assembly gives it: here the clients' data."""

    def __init__(self, experiment: Experiment, model: SplitModel, public: Samples | None, parts: Parts) -> None:
        super().__init__(experiment, model, public, parts)
        assert public is not None
        self.pooled = public
        self.shared = model.read(parts)  # (P,)
        self.statistics: dict[str, Tensor] = model.read_private(parts)  # of batch norm, where there is one

    @property
    def state_names(self) -> Sequence[str]:
        return ("shared",)

    @property
    def state(self) -> State:
        return super().state | self.statistics

    def restore(self, state: State) -> None:
        super().restore(state)
        self.statistics = {name: state[name] for name in self.statistics}  # type: ignore[misc]

    def round(self, cohort: Cohort) -> None:
        model = self.global_model()
        order = streams.stream(self.experiment.seed, "batches", round=cohort.round)
        train(model, self.pooled, self.experiment.train, order)
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

    def train(self, round: int, message: Message) -> Message:
        raise Refused("all training is the server's")

    def evaluate(self, round: int, message: Message) -> Message:
        self.state |= {name: value for name, value in message.items() if name in self.state}  # type: ignore[misc]
        return self.score(round, message["shared"])  # type: ignore[arg-type]

    @classmethod
    def load_final(cls, model: SplitModel, parts: Parts, server: State, own: State) -> None:
        model.write(parts, server["shared"])  # type: ignore[arg-type]
        model.write_private(server)
