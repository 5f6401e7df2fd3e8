"""Ditto (Li et al. 2021): a common model by FedAvg, and for each client a personal one that stays near it.

The personal model is that of a client which trains alone, plus weight / 2 * |v - w|^2 towards the received weights w.
It never leaves the client.
"""

from dataclasses import replace

from refprotofl.core import Parts, State
from refprotofl.methods import FedAvgClient, ValidatedMessage, proximal_term
from refprotofl.methods.builtin.ditto import Options
from refprotofl.methods.builtin.local.local import LocalClient
from refprotofl.methods.common import weights
from refprotofl.models import SplitModel
from refprotofl.wire import Message

PERSONAL = "personal."  # the names of the personal model's entries in a client's state begin with it


def personal_state(state: State) -> State:
    return {name.removeprefix(PERSONAL): value for name, value in state.items() if name.startswith(PERSONAL)}


class DittoClient(FedAvgClient):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        alone = self.alone()  # v; begins where the first received model is
        alone.load()
        # Both models see the same batches, but under sample-level privacy batches that are drawn independently.
        order = self.stream("personal-batches", round) if self.samples.sealed else None
        pull = proximal_term(self, received, self.options.weight)
        alone.fit(round, samples=self.training_samples(), order=order, grad_hook=pull)
        alone.keep_trained(round)
        self.load(received)  # w
        self.fit(round)
        answer = weights.write_update(self, round, received, self.keep_trained(round))
        self.state |= {f"{PERSONAL}{name}": value for name, value in alone.state.items()}
        return answer

    def alone(self) -> LocalClient:
        """Return a client that has the personal model and shares nothing; a new one starts at the loaded weights."""
        state = personal_state(self.state) or dict(self.model.read_private(()))
        return LocalClient(replace(self.context, parts=()), state)

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        self.load(message.tensor("shared"))
        return self.alone().evaluate(round, message)

    @classmethod
    def load_final(cls, model: SplitModel, parts: Parts, server: State, own: State) -> None:
        if personal_state(own):
            LocalClient.load_final(model, (), server, personal_state(own))
        else:  # it never took part
            super().load_final(model, parts, server, own)
