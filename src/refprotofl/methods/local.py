"""Training without federation: the reference that every method with private parts must beat."""

from torch import Tensor

from refprotofl.methods.base import Client, Cohort, Server
from refprotofl.methods.training import train
from refprotofl.models import SplitModel
from refprotofl.state import State
from refprotofl.wire import Message


class LocalServer(Server):
    @property
    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """There is nothing to restore."""

    def round(self, cohort: Cohort) -> None:
        for _ in self.ask(cohort, "train", lambda _: {}, lambda _, answer: answer):
            pass

    def evaluation(self) -> Message:
        return {}


class LocalClient(Client):
    def train(self, round: int, message: Message) -> Message:
        self.load_backbone()
        self.model.write_adapter(self.adapter())
        train(self.model, self.samples, self.experiment.train, self.stream("batches", round))
        self.keep_backbone()
        self.state["adapter"] = self.model.read_adapter()
        self.state["trained_round"] = round
        return {}

    def evaluate(self, round: int, message: Message) -> Message:
        adapter = self.adapter()
        return self.score(adapter, adapter if self.state.get("trained_round") == round else None, None, None)

    def adapter(self) -> Tensor:
        kept = self.state.get("adapter")
        return kept if isinstance(kept, Tensor) else self.seat.initial_adapter

    @staticmethod
    def load_final(model: SplitModel, server: State, own: State) -> None:
        model.write_backbone(own)  # type: ignore[arg-type]
        if isinstance(adapter := own.get("adapter"), Tensor):  # else the client never trained
            model.write_adapter(adapter)
