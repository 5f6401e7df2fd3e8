"""The one training loop: `Client.fit` trains a client's model by `train`, a server its own parameters by `minimise`."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from refprotofl.core import RefProtoFLError
from refprotofl.experiment import Train
from refprotofl.methods.base import guards
from refprotofl.methods.base.augmentation import Augment
from refprotofl.methods.base.optimisers import GradHook, Optimiser, create_optimiser
from refprotofl.methods.base.samples import Samples
from refprotofl.models import ALL, Parts, SplitModel
from refprotofl.privacy import SampleNoise, open_samples

Penalty = Callable[[Tensor, Tensor], Tensor]  # embeddings (B, m), labels (B,) -> scalar
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor | None]]  # inputs, labels -> loss, the method's term in it
Step = Loss  # which also moves the parameters


class Diverged(RefProtoFLError):
    """Training reached numbers that are not finite, at a client or at the server."""


@dataclass(frozen=True)
class TrainResult:
    """The number of steps, and the mean loss and penalty over them; the means are NaN for private samples."""

    loss: float
    penalty: float
    steps: int


def cross_entropy(model: SplitModel, penalty: Penalty | None = None) -> Loss:
    """Return the mean cross-entropy, plus a penalty that is given the batch's embeddings and labels."""

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
    settings: Train,
    order: np.random.Generator,
    *,
    loss: Loss | None = None,
    grad_hook: GradHook | None = None,
    parts: Parts = ALL,
    frozen: nn.Module | None = None,
    augment: Augment | None = None,
) -> TrainResult:
    """Train these parts of the model with a fresh optimiser; the other parts keep their parameters.

    `frozen` is a module that keeps its parameters and the statistics of its norms as well. The last incomplete batch is
    used; `augment` changes each batch of samples. Private samples bring their noise along, so that no caller can leave
    it out.
    """
    data, noise = open_samples(samples)
    before = model.read(parts) if parts != ALL else None
    model.train()
    if frozen is not None:
        frozen.eval()
    loss = loss or cross_entropy(model)
    with fixed(_outside(model, parts, frozen)):
        optimiser = create_optimiser(model.parameters_of(parts), settings)
        if noise is None:
            step, batches = _plain_step(optimiser, loss, grad_hook), _batches(data, settings, order, model.device)
        else:
            step = _noised_step(optimiser, model, loss, grad_hook, noise, settings, len(data))
            batches = noise.batches(data, settings, order, model.device)
        result = _run(model, step, batches, data.inputs.to(model.device), augment)
    if not math.isfinite(result.loss):
        raise Diverged(f"training diverged; a smaller train.lr than {settings.lr} may help")
    if before is not None:
        guards.part_moved(before, model.read(parts), " and ".join(parts))
    if noise is not None:  # exact figures of private samples are not a method's to send
        noise.penalty = result.penalty
        return TrainResult(math.nan, math.nan, result.steps)
    return result


def _outside(model: SplitModel, parts: Parts, frozen: nn.Module | None) -> Iterator[nn.Parameter]:
    trained = {id(parameter) for parameter in model.parameters_of(parts)}
    yield from (parameter for parameter in model.parameters() if id(parameter) not in trained)
    if frozen is not None:
        yield from frozen.parameters()


def _run(
    model: SplitModel,
    step: Step,
    batches: Iterable[tuple[Tensor, Tensor]],
    inputs: Tensor,
    augment: Augment | None = None,
) -> TrainResult:
    """Take a step for each batch of rows (B,) of the inputs and labels (B,).

    The loss of the result is not finite where any loss or parameter is not.
    """
    loss_sum, penalty_sum, steps = torch.zeros((), device=model.device), torch.zeros((), device=model.device), 0
    for rows, labels in batches:
        batch = inputs[rows] if augment is None else augment(inputs[rows])
        total, penalty = step(model.prepare(batch), labels)
        loss_sum += total.detach()
        if penalty is not None:
            penalty_sum += penalty.detach()
        steps += 1
    sums = [loss_sum, *(value.detach().sum() for value in model.parameters())]
    finite = torch.stack(sums).isfinite().all()
    return TrainResult(loss_sum.item() / steps if finite else math.nan, penalty_sum.item() / steps, steps)


def _plain_step(optimiser: Optimiser, loss: Loss, grad_hook: GradHook | None) -> Step:
    def step(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        total, penalty = loss(inputs, labels)
        optimiser.step(total, grad_hook)
        return total, penalty

    return step


def _noised_step(
    optimiser: Optimiser,
    model: SplitModel,
    loss: Loss,
    grad_hook: GradHook | None,
    noise: SampleNoise,
    settings: Train,
    samples: int,
) -> Step:
    """Return a step along noised gradients (DP-SGD), with the exact loss and penalty of the batch."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    trained = {names[id(parameter)]: parameter for parameter in optimiser.parameters}
    per_pass = settings.steps_per_epoch(samples)

    def step(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        gradients, total, penalty = noise.gradients(model, trained, loss, inputs, labels, samples, per_pass)
        optimiser.step_along(gradients, grad_hook)
        return total, penalty

    return step


def _batches(
    samples: Samples, settings: Train, order: np.random.Generator, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rows and labels of each batch; they are moved to the device once an epoch, the last of which may be cut."""
    left = settings.steps(len(samples))
    while left > 0:
        rows = samples.rows[torch.from_numpy(order.permutation(len(samples)))]
        pairs = (whole.to(device).split(settings.batch_size) for whole in (rows, samples.labels[rows]))
        yield from islice(zip(*pairs, strict=True), left)
        left -= settings.steps_per_epoch(len(samples))


def check_alignment(result: TrainResult, samples: Samples, weight: float, defined: Tensor, key: str = "align") -> None:
    """Check the method's own loss term: positive where a sample's class is `defined` (C,) and its weight is not 0."""
    data, noise = open_samples(samples)
    penalty = result.penalty if noise is None else noise.penalty
    guards.alignment_happened(penalty, weight, defined[data.own_labels], key)


@contextmanager
def fixed(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """Switch off the gradients of these parameters in the block, so that they do not move."""
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad = False
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad = True


def plain_sgd(lr: float, epochs: int, batch_size: int, *, momentum: float = 0.0, weight_decay: float = 0.0) -> Train:
    """Return settings of SGD for a server's own training, which [train] does not describe."""
    return Train(lr=lr, local_epochs=epochs, batch_size=batch_size, momentum=momentum, weight_decay=weight_decay)


def minimise(
    parameters: list[nn.Parameter],
    loss: Callable[[Tensor], Tensor],
    count: int,
    settings: Train,
    order: np.random.Generator | None = None,
    grad_hook: GradHook | None = None,
) -> None:
    """Train parameters at the server: minimise `loss(rows)` over batches of the rows 0..count-1.

    The rows are on the parameters' device, shuffled by `order` or in turn.
    """
    optimiser, device = create_optimiser(parameters, settings), parameters[0].device
    for _ in range(settings.local_epochs):
        rows = torch.arange(count) if order is None else torch.from_numpy(order.permutation(count))
        for batch in rows.to(device).split(settings.batch_size):
            optimiser.step(loss(batch), grad_hook)
    if not all(torch.isfinite(parameter).all() for parameter in parameters):
        raise Diverged(f"training diverged; a smaller server-lr than {settings.lr} may help")


@torch.no_grad()
def embed(model: SplitModel, inputs: Tensor) -> Tensor:
    """Return the inputs' embeddings (N, m) in evaluation mode, on the CPU."""
    model.eval()
    if not len(inputs):  # not every backbone takes an empty batch
        return torch.zeros(0, model.feature.out_features)
    batches = inputs.to(model.device).split(model.forward_batch)
    return torch.cat([model.embed(model.prepare(batch)) for batch in batches]).cpu()


@torch.no_grad()
def classify(model: SplitModel, embeddings: Tensor) -> Tensor:
    """Return the head's logits (N, C) of embeddings (N, m), on the CPU."""
    logits: Tensor = model.head(embeddings.to(model.device))
    return logits.cpu()
