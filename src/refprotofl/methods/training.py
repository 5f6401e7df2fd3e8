"""The one local training loop."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.optim.sgd import sgd

from refprotofl.errors import RefProtoFLError
from refprotofl.experiment import Train
from refprotofl.models import SplitModel

EVALUATION_BATCH = 512

Penalty = Callable[[Tensor, Tensor], Tensor]  # embeddings (B, m), labels (B,) -> scalar


class Diverged(RefProtoFLError):
    """A client's own training failed; the others go on."""


@dataclass(frozen=True)
class Samples:
    """A client's samples: rows of the whole set, which is never copied."""

    images: Tensor  # (N, channels, H, W) uint8
    labels: Tensor  # (N,) int64
    rows: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def own_labels(self) -> Tensor:
        return self.labels[self.rows]


@dataclass(frozen=True)
class Trained:
    """What training tells of itself, as means over its batches."""

    loss: float
    penalty: float
    steps: int


class FreshSgd:
    """SGD with momentum and weight decay whose state starts at zero.

    By torch's fused kernel, but not through torch.optim.SGD: building one imports torch's compiler, which takes longer
    than a small federation's whole first round.
    """

    def __init__(self, model: SplitModel, table: Train) -> None:
        self._table = table
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._momenta = [torch.zeros_like(parameter) for parameter in self._parameters]

    def step(self, loss: Tensor) -> None:
        for parameter in self._parameters:
            parameter.grad = None
        loss.backward()
        reached = [i for i, parameter in enumerate(self._parameters) if parameter.grad is not None]
        with torch.no_grad():
            sgd(
                [self._parameters[i] for i in reached],
                [self._parameters[i].grad for i in reached],  # type: ignore[misc]
                [self._momenta[i] for i in reached],
                has_sparse_grad=False,
                foreach=False,
                fused=True,
                lr=self._table.lr,
                momentum=self._table.momentum,
                weight_decay=self._table.weight_decay,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )


def train(
    model: SplitModel, samples: Samples, table: Train, order: np.random.Generator, penalty: Penalty | None = None
) -> Trained:
    """SGD over all parameters with a fresh optimiser; the last incomplete batch is used.

    The loss is mean cross-entropy plus `penalty`, which sees embeddings and labels of the batch.
    """
    optimiser = FreshSgd(model, table)
    model.train()
    loss_sum, penalty_sum, steps = torch.zeros(()), torch.zeros(()), 0
    for rows in _batches(samples, table, order):
        labels = samples.labels[rows]
        embeddings = model.embed(model.prepare(samples.images[rows]))  # (B, m)
        loss = functional.cross_entropy(model.head(embeddings), labels)
        if penalty is not None:
            extra = penalty(embeddings, labels)
            penalty_sum += extra.detach()
            loss = loss + extra
        optimiser.step(loss)
        loss_sum += loss.detach()
        steps += 1
    if not torch.isfinite(loss_sum) or not all(value.isfinite().all() for value in model.parameters()):
        raise Diverged(f"training diverged; a smaller train.lr than {table.lr} may help")
    return Trained(loss_sum.item() / steps, penalty_sum.item() / steps, steps)


@torch.no_grad()
def embed(model: SplitModel, images: Tensor) -> Tensor:
    """Embeddings in evaluation mode, (N, m), in large batches."""
    model.eval()
    if not len(images):  # not every backbone takes an empty batch
        return torch.zeros(0, model.feature.out_features)
    return torch.cat([model.embed(model.prepare(batch)) for batch in images.split(EVALUATION_BATCH)])


def _batches(samples: Samples, table: Train, order: np.random.Generator) -> Iterator[Tensor]:
    for _ in range(table.local_epochs):
        shuffled = samples.rows[torch.from_numpy(order.permutation(len(samples)))]
        yield from shuffled.split(table.batch_size)
