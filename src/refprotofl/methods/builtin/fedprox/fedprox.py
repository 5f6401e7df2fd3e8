"""FedProx (Li et al. 2020): FedAvg with a proximal term that holds clients near the weights they received."""

from refprotofl.methods import Client, ValidatedMessage, proximal_term
from refprotofl.methods.builtin.fedprox import Options
from refprotofl.methods.common import weights
from refprotofl.wire import Message


class FedProxClient(Client):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        self.fit(round, grad_hook=proximal_term(self, received, self.options.mu))
        return weights.write_update(self, round, received, self.keep_trained(round))

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"))
