"""The optimisers of `train.optimizer`: objects whose state starts at zero and ends with one client's training.

They call torch's fused kernels instead of the classes of torch.optim: building one of those imports torch's compiler,
which takes longer than a small federation's whole first round.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from refprotofl.experiment import Train
from refprotofl.models.kernels import FUSED

GradHook = Callable[[list[nn.Parameter]], None]  # changes the gradients of the trained parameters in place


class Optimiser(ABC):
    """Moves the parameters that train; one without a gradient in a step stays, with its state."""

    def __init__(self, parameters: list[nn.Parameter], settings: Train) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._settings = settings

    def step(self, loss: Tensor, grad_hook: GradHook | None = None) -> None:
        """Take a step down the loss; the hook may change the gradients before they enter the optimiser's state."""
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()
        self._move(grad_hook)

    def step_along(self, gradients: Iterable[Tensor], grad_hook: GradHook | None = None) -> None:
        """Take a step along given gradients of the trained parameters, in their order."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        self._move(grad_hook)

    def _move(self, grad_hook: GradHook | None) -> None:
        if grad_hook is not None:
            grad_hook(self.parameters)
        if self._settings.grad_clip:  # after the hook: what it adds is part of the gradient of the method's loss
            nn.utils.clip_grad_norm_(self.parameters, self._settings.grad_clip)
        reached = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        with torch.no_grad():
            self._update(reached, [self.parameters[i].grad for i in reached])  # type: ignore[misc]

    @abstractmethod
    def _update(self, reached: list[int], gradients: list[Tensor]) -> None:
        """Move the parameters with these positions along their gradients."""

    def _zeros(self) -> list[Tensor]:
        return [torch.zeros_like(parameter) for parameter in self.parameters]


class FreshSgd(Optimiser):
    """SGD with momentum and weight decay."""

    def __init__(self, parameters: list[nn.Parameter], settings: Train) -> None:
        super().__init__(parameters, settings)
        self._momenta = self._zeros()

    def _update(self, reached: list[int], gradients: list[Tensor]) -> None:
        sgd(
            [self.parameters[i] for i in reached],
            gradients,
            [self._momenta[i] for i in reached],
            has_sparse_grad=False,
            foreach=False,
            fused=FUSED,
            lr=self._settings.lr,
            momentum=self._settings.momentum,
            weight_decay=self._settings.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )


class FreshAdam(Optimiser):
    """Adam with weight decay as part of the gradient, or `decoupled` from it (AdamW, Loshchilov and Hutter 2019)."""

    def __init__(self, parameters: list[nn.Parameter], settings: Train, *, decoupled: bool = False) -> None:
        super().__init__(parameters, settings)
        self._decoupled = decoupled
        self._means, self._squares = self._zeros(), self._zeros()
        self._steps = [torch.zeros((), device=parameter.device) for parameter in self.parameters]

    def _update(self, reached: list[int], gradients: list[Tensor]) -> None:
        beta1, beta2 = self._settings.betas
        adam(
            [self.parameters[i] for i in reached],
            gradients,
            [self._means[i] for i in reached],
            [self._squares[i] for i in reached],
            [],
            [self._steps[i] for i in reached],
            foreach=False,
            fused=FUSED,
            decoupled_weight_decay=self._decoupled,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=self._settings.lr,
            weight_decay=self._settings.weight_decay,
            eps=self._settings.eps,
            maximize=False,
        )


OPTIMISERS: dict[str, Callable[[list[nn.Parameter], Train], Optimiser]] = {
    "sgd": FreshSgd,
    "adam": FreshAdam,
    "adamw": partial(FreshAdam, decoupled=True),
}


def create_optimiser(parameters: list[nn.Parameter], settings: Train) -> Optimiser:
    """Return the optimiser that the settings name, with a state of zeros."""
    return OPTIMISERS[settings.optimizer](parameters, settings)
