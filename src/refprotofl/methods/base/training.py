"""The one local training loop."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.sgd import sgd

from refprotofl.core.errors import RefProtoFLError
from refprotofl.experiment.sections import Train
from refprotofl.methods.base import guards
from refprotofl.methods.base.samples import Samples
from refprotofl.models import ALL, FORWARD_BATCH, Parts, SplitModel
from refprotofl.models.kernels import FUSED_SGD
from refprotofl.privacy.dp_sgd import SampleNoise, steps_per_pass
from refprotofl.privacy.sealed_samples import open_samples

Penalty = Callable[[Tensor, Tensor], Tensor]  # embeddings (B, m), labels (B,) -> scalar
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]  # inputs, labels -> loss, the method's term in it


class Diverged(RefProtoFLError):
    """Training came to numbers that are not finite: a client's own, and the others go on, or the server's."""


@dataclass(frozen=True)
class TrainResult:
    """What training tells of itself; loss and penalty are means over its batches, NaN of private samples."""

    loss: float
    penalty: float
    steps: int


class FreshSgd:
    """SGD with momentum and weight decay whose state starts at zero.

    By torch's fused kernel, but not through torch.optim.SGD: building one imports torch's compiler, which takes longer
    than a small federation's whole first round.
    """

    def __init__(self, parameters: list[nn.Parameter], table: Train) -> None:
        self._table = table
        self._parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._momenta = [torch.zeros_like(parameter) for parameter in self._parameters]

    def step(self, loss: Tensor, grad_hook: Callable[[], None] | None = None) -> None:
        """One step down the loss; `pull` may add to the gradients before they enter the momentum."""
        for parameter in self._parameters:
            parameter.grad = None
        loss.backward()
        self._move(grad_hook)

    def step_along(self, gradients: Iterable[Tensor], grad_hook: Callable[[], None] | None = None) -> None:
        """One step with gradients that are known, of the parameters that learn, in their order."""
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._move(grad_hook)

    def _move(self, grad_hook: Callable[[], None] | None) -> None:
        if grad_hook is not None:
            grad_hook()
        reached = [i for i, parameter in enumerate(self._parameters) if parameter.grad is not None]
        with torch.no_grad():
            sgd(
                [self._parameters[i] for i in reached],
                [self._parameters[i].grad for i in reached],  # type: ignore[misc]
                [self._momenta[i] for i in reached],
                has_sparse_grad=False,
                foreach=False,
                fused=FUSED_SGD,
                lr=self._table.lr,
                momentum=self._table.momentum,
                weight_decay=self._table.weight_decay,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )


def cross_entropy(model: SplitModel, penalty: Penalty | None = None) -> Loss:
    """Mean cross-entropy, plus a penalty that sees the batch's embeddings and labels."""

    def loss(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        embeddings = model.embed(inputs)  # (B, m)
        entropy = functional.cross_entropy(model.head(embeddings), labels)
        if penalty is None:
            return entropy, None
        extra = penalty(embeddings, labels)
        return entropy + extra, extra

    return loss


def train(
    model: SplitModel,
    samples: Samples,
    table: Train,
    order: np.random.Generator,
    *,
    loss: Loss | None = None,
    grad_hook: Callable[[], None] | None = None,
    parts: Parts = ALL,
    frozen: nn.Module | None = None,
) -> TrainResult:
    """SGD over the parameters of `parts` with a fresh optimiser; the last incomplete batch is used.

    The statistics of norms in `still` stay as they are. Private samples are trained on by noised gradients of Poisson
    batches: they bring their noise along, so that no caller can leave it out.
    """
    data, noise = open_samples(samples)
    optimiser = FreshSgd(model.parameters_of(parts), table)
    loss = loss or cross_entropy(model)
    model.train()
    if frozen is not None:
        frozen.eval()
    images = data.images.to(model.device)
    loss_sum, penalty_sum, steps = torch.zeros((), device=model.device), torch.zeros((), device=model.device), 0
    down = _noised_descent(model, len(data), table, loss, parts, noise) if noise else None
    batches = noise.batches if noise else _batches
    for rows, labels in batches(data, table, order, model.device):
        inputs = model.prepare(images[rows])
        if down is None:
            total, penalty = loss(inputs, labels)
            optimiser.step(total, grad_hook)
        else:
            gradients, total, penalty = down(inputs, labels)
            optimiser.step_along(gradients, grad_hook)
        loss_sum += total.detach()
        if penalty is not None:
            penalty_sum += penalty.detach()
        steps += 1
    sums = [loss_sum, *(value.detach().sum() for value in model.parameters())]  # finite if all terms are
    if not torch.stack(sums).isfinite().all():
        raise Diverged(f"training diverged; a smaller train.lr than {table.lr} may help")
    if noise is not None:
        noise.penalty = penalty_sum.item() / steps
        return TrainResult(math.nan, math.nan, steps)  # exact figures of private samples are not a method's to send
    return TrainResult(loss_sum.item() / steps, penalty_sum.item() / steps, steps)


def check_alignment(course: TrainResult, samples: Samples, weight: float, defined: Tensor, key: str = "align") -> None:
    """Guard the method's own term: positive where a sample's class is `defined` (C,) and its weight is not 0."""
    data, noise = open_samples(samples)
    penalty = course.penalty if noise is None else noise.penalty
    guards.alignment_happened(penalty, weight, defined[data.own_labels], key)


def _noised_descent(
    model: SplitModel, samples: int, table: Train, loss: Loss, parts: Parts, noise: SampleNoise
) -> Callable[[Tensor, Tensor], tuple[list[Tensor], Tensor, Tensor]]:
    """From a batch to its noised gradients of the parameters that learn, its loss and its penalty."""
    learning = {id(parameter) for parameter in model.parameters_of(parts) if parameter.requires_grad}
    moving = {name: parameter for name, parameter in model.named_parameters() if id(parameter) in learning}
    per_pass = steps_per_pass(samples, table.batch_size)
    return lambda inputs, labels: noise.gradients(model, moving, loss, inputs, labels, samples, per_pass)


@contextmanager
def fixed(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """These parameters have no gradients meanwhile, and so do not move."""
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad = False
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad = True


def train_part(
    model: SplitModel,
    parts: Parts,
    samples: Samples,
    table: Train,
    order: np.random.Generator,
    *,
    loss: Loss | None = None,
) -> TrainResult:
    """Trains these parts alone, with a fresh optimiser; the others stand still, which saves their gradients."""
    moving = {id(parameter) for parameter in model.parameters_of(parts)}
    before = model.read(parts)
    with fixed(parameter for parameter in model.parameters() if id(parameter) not in moving):
        trained = train(model, samples, table, order, loss=loss, parts=parts)
    guards.part_moved(before, model.read(parts), " and ".join(parts))
    return trained


@torch.no_grad()
def embed(model: SplitModel, images: Tensor) -> Tensor:
    """Embeddings in evaluation mode, (N, m), in large batches; on the CPU."""
    model.eval()
    if not len(images):  # not every backbone takes an empty batch
        return torch.zeros(0, model.feature.out_features)
    batches = images.to(model.device).split(FORWARD_BATCH)
    return torch.cat([model.embed(model.prepare(batch)) for batch in batches]).cpu()


@torch.no_grad()
def classify(model: SplitModel, embeddings: Tensor) -> Tensor:
    """The head's logits of embeddings (N, m), on the CPU as they are."""
    logits: Tensor = model.head(embeddings.to(model.device))
    return logits.cpu()


def _batches(
    samples: Samples, table: Train, order: np.random.Generator, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and labels of each batch; they go to the device once an epoch."""
    for _ in range(table.local_epochs):
        rows = samples.rows[torch.from_numpy(order.permutation(len(samples)))]
        pairs = (whole.to(device).split(table.batch_size) for whole in (rows, samples.labels[rows]))
        yield from zip(*pairs, strict=True)
