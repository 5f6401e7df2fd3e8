"""FedProx (Li et al. 2020): FedAvg whose clients are pulled towards the weights they received."""

from collections.abc import Callable

from refprotofl.methods.base.client import Client
from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.methods.base.training import train
from refprotofl.methods.builtin.fedprox import Options
from refprotofl.methods.common import weights
from refprotofl.wire import Message


def proximal_pull(client: Client, mu: float) -> Callable[[], None] | None:
    """The gradient of mu / 2 * |weights - received|^2 over the shared parameters, as they are loaded now.

    It is added before the momentum, as if it were part of the loss.
    """
    if mu == 0:
        return None
    parameters = client.model.parameters_of(client.parts)
    received = [parameter.detach().clone() for parameter in parameters]

    def grad_hook() -> None:
        for parameter, start in zip(parameters, received, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - start, alpha=mu)

    return grad_hook


class FedProxClient(Client):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        grad_hook = proximal_pull(self, self.options.mu)
        samples, order = self.training_samples(), self.stream("batches", round)
        train(self.model, samples, self.experiment.train, order, grad_hook=grad_hook)
        return weights.write_update(self, round, received, self.keep_trained(round))

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"))
