"""Gradient hooks: changes to the gradients of local training, for the argument `grad_hook` of `Client.fit`.

A hook is called before each step, with the parameters that train. What it adds enters the momentum, as if it were part
of the loss.
"""

from torch import Tensor, nn

from refprotofl.methods.base.client import Client
from refprotofl.methods.base.optimisers import GradHook


def add_to_gradients(client: Client, correction: Tensor) -> GradHook:
    """Return a hook that adds a vector (P,) to the gradients of the shared parameters."""
    shared = client.model.parameters_of(client.parts)
    pieces = client.model.shaped(client.parts, correction)

    def grad_hook(trained: list[nn.Parameter]) -> None:
        for parameter, piece in zip(shared, pieces, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(piece)

    return grad_hook


def proximal_term(client: Client, received: Tensor, mu: float) -> GradHook | None:
    """Return a hook that adds the gradient of mu / 2 * |w - w_received|^2 over the shared parameters, received (P,)."""
    if mu == 0:
        return None
    shared = client.model.parameters_of(client.parts)
    anchors = client.model.shaped(client.parts, received)

    def grad_hook(trained: list[nn.Parameter]) -> None:
        for parameter, anchor in zip(shared, anchors, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(parameter.detach() - anchor, alpha=mu)

    return grad_hook


def in_turn(*hooks: GradHook | None) -> GradHook | None:
    """Return one hook that calls these in turn; None where all are None."""
    given = [hook for hook in hooks if hook is not None]

    def grad_hook(trained: list[nn.Parameter]) -> None:
        for hook in given:
            hook(trained)

    return grad_hook if given else None
