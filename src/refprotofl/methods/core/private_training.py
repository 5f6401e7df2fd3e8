"""DP-SGD (Abadi et al. 2016): every sample's gradient is shortened, their sum is noised.

What comes of such gradients (weights, prototypes of public images) is as private as they are. A batch is a Poisson
sample: each of a client's samples is in it or not, by a draw of its own, which is what the accountant counts on.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from refprotofl.errors import InputError
from refprotofl.experiment.tables import Train
from refprotofl.methods.core.samples import Samples
from refprotofl.models import SplitModel

if TYPE_CHECKING:
    from refprotofl.methods.core.training import Loss

HELD = 1 << 25  # values of single samples' gradients that are in memory at a time


def steps_per_pass(samples: int, batch_size: int) -> int:
    """As many as without noise. Each sample is in a step's batch with probability 1 / steps: once a pass on average."""
    return math.ceil(samples / batch_size)


class _Lossy(nn.Module):
    """A loss that is a function of the model's parameters, too."""

    def __init__(self, model: SplitModel, loss: "Loss") -> None:
        super().__init__()
        self.model = model
        self._loss = loss

    def forward(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._loss(inputs, labels)


@dataclass
class Private:
    """How one client's training in one round is made private by sample."""

    clip: float
    noise: float
    draw: np.random.Generator  # of the noise
    steps: int = 0  # taken so far

    def batches(
        self, samples: Samples, table: Train, order: np.random.Generator, device: torch.device
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows and labels of each batch, which may be empty."""
        steps = steps_per_pass(len(samples), table.batch_size)
        for _ in range(table.local_epochs * steps):
            rows = samples.rows[torch.from_numpy(order.random(len(samples)) < 1 / steps)]
            yield rows.to(device), samples.labels[rows].to(device)

    def gradients(
        self,
        model: SplitModel,
        moving: Mapping[str, nn.Parameter],
        loss: "Loss",
        inputs: Tensor,
        labels: Tensor,
        expected: float,
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """The noised gradient of the mean loss by parameter, and loss and penalty; all sums are over `expected`."""
        sums, total, penalty = clipped_sums(model, moving, loss, inputs, labels, self.clip)
        self.steps += 1
        noised = [(one + self._noise(one)) / expected for one in sums]
        return noised, total / expected, penalty / expected

    def _noise(self, like: Tensor) -> Tensor:
        drawn = torch.from_numpy(self.draw.standard_normal(tuple(like.shape), dtype=np.float32))
        return (self.noise * self.clip * drawn).to(like.device)


def clipped_sums(
    model: SplitModel,
    moving: Mapping[str, nn.Parameter],
    loss: "Loss",
    inputs: Tensor,
    labels: Tensor,
    clip: float,
) -> tuple[list[Tensor], Tensor, Tensor]:
    """By parameter the sum of the samples' gradients, each as a whole at most `clip` long; sums of loss and penalty.

    The loss is asked about one sample at a time: it must be a mean over the batch's samples, each by itself.
    """
    weights = {f"model.{name}": parameter.detach() for name, parameter in moving.items()}
    lossy = _Lossy(model, loss)

    def of_one(weights: dict[str, Tensor], one: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        total, penalty = functional_call(lossy, weights, (one.unsqueeze(0), label.unsqueeze(0)))
        return total, torch.zeros_like(total) if penalty is None else penalty

    each = vmap(grad_and_value(of_one, has_aux=True), in_dims=(None, 0, 0))
    sums = [torch.zeros_like(one) for one in weights.values()]
    total = torch.zeros((), device=model.device)
    penalty = torch.zeros((), device=model.device)
    at_once = max(1, HELD // max(1, sum(one.numel() for one in sums)))
    for some, of_some in zip(inputs.split(at_once), labels.split(at_once), strict=True):
        if not len(some):
            continue
        found, (losses, penalties) = each(weights, some, of_some)  # (b, *shape) by name; (b,), (b,)
        found = list(found.values())
        norms = torch.stack([one.flatten(1).norm(dim=1) for one in found]).norm(dim=0)  # (b,)
        shares = (clip / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(max=1.0)
        for place, one in enumerate(found):
            sums[place] += (shares @ one.flatten(1)).view_as(sums[place])
        total += losses.sum()
        penalty += penalties.sum()
    return sums, total, penalty


def check_separable(model: SplitModel, name: str, shape: tuple[int, int, int]) -> None:
    """Refuses a model of which a sample's own gradient is not to be had; it is tried on two images."""
    if any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules()):
        raise InputError(
            f'privacy.unit = "sample": model.name = {name!r} has batch norm, by which a sample\'s gradient depends on '
            "the others of its batch; use a model without it, such as one with group norm."
        )
    moving = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
    model.train()
    try:
        clipped_sums(model, moving, _first_output(model), torch.zeros(2, *shape), torch.zeros(2).long(), 1.0)
    except Exception as problem:
        line = str(problem).strip().partition("\n")[0]
        raise InputError(
            f'privacy.unit = "sample": of model.name = {name!r} the gradient of a single sample cannot be computed '
            f"({type(problem).__name__}: {line}). It must draw nothing at random and change nothing in place."
        ) from None


def _first_output(model: SplitModel) -> "Loss":
    return lambda inputs, labels: (model(inputs)[:, 0].mean(), None)
