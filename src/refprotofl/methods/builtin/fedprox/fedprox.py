"""FedProx (Li et al. 2020): FedAvg with a proximal term that holds clients near the weights they received."""

from torch import Tensor, nn

from refprotofl.methods import Client, GradHook, ValidatedMessage
from refprotofl.methods.builtin.fedprox import Options
from refprotofl.methods.common import weights
from refprotofl.wire import Message


def proximal_term(client: Client, received: Tensor, mu: float) -> GradHook | None:
    """Return a hook that adds the gradient of mu / 2 * |w - w_received|^2 over the shared parameters, received (P,).

    It is added before the momentum, as if it were part of the loss.
    """
    if mu == 0:
        return None
    shared = client.model.parameters_of(client.parts)
    anchors = client.model.shaped(client.parts, received)

    def grad_hook(trained: list[nn.Parameter]) -> None:
        for parameter, anchor in zip(shared, anchors, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - anchor, alpha=mu)

    return grad_hook


class FedProxClient(Client):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        self.fit(round, grad_hook=proximal_term(self, received, self.options.mu))
        return weights.write_update(self, round, received, self.keep_trained(round))

    def evaluate(self, round: int, message: ValidatedMessage) -> Message:
        return self.score(round, message.tensor("shared"))
