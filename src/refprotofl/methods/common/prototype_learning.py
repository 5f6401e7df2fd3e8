"""What methods that learn from class prototypes have in common: to collect, to average, to be drawn to them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from refprotofl.core.devices import CPU
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Train
from refprotofl.methods import erpa
from refprotofl.methods.aggregators import create_aggregator
from refprotofl.methods.base import guards
from refprotofl.methods.base.client import Client
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.training import Diverged, FreshSgd, Penalty, check_alignment, cross_entropy, train
from refprotofl.methods.common.prototypes import ClassMeans, class_means, with_quorum


@dataclass(frozen=True)
class Pull:
    """How strongly embeddings are drawn to their class's anchor, and under which key the user set it."""

    weight: float
    key: str
    reduction: Literal["mse", "squared"] = "mse"  # squared distance averaged over the embedding too, or summed

    def penalty(self, anchors: Tensor, defined: Tensor, device: torch.device = CPU) -> Penalty | None:
        if self.weight == 0 or not defined.any():
            return None
        anchors, defined = anchors.to(device), defined.to(device)
        weight = self.weight / anchors.shape[1] if self.reduction == "mse" else self.weight
        return lambda embeddings, labels: weight * erpa.alignment_loss(embeddings, labels, anchors, defined)


class Running:
    """A penalty that also keeps the embeddings of the last epoch, as they were while the weights moved."""

    def __init__(self, penalty: Penalty | None, samples: int, table: Train) -> None:
        self._penalty = penalty
        self._skip = (table.local_epochs - 1) * -(-samples // table.batch_size)  # batches before the last epoch
        self._seen: list[tuple[Tensor, Tensor]] = []

    def __call__(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        if self._skip > 0:
            self._skip -= 1
        else:
            self._seen.append((embeddings.detach(), labels))
        return embeddings.new_zeros(()) if self._penalty is None else self._penalty(embeddings, labels)

    def means(self, num_classes: int) -> ClassMeans:
        embeddings, labels = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
        return ClassMeans(*erpa.class_prototypes(embeddings.cpu(), labels.cpu(), num_classes))


def collect(client: Client, samples: Samples, *, unit: bool = False) -> ClassMeans:
    """Class means with the weights that are loaded, in evaluation mode; `unit`: of embeddings of length 1.

    Where samples are protected they are noised: they are made of the samples themselves.
    """
    return ClassMeans(*class_means(client, samples, unit=unit))


def train_towards(
    client: Client, round: int, anchors: Tensor, defined: Tensor, grad_hook: Pull, *, running: bool = False
) -> Running | None:
    """Trains the client's own model towards the anchors, (C, m) and (C,); with `running`, gives what it saw."""
    client.model.write_private(client.state)
    samples, table = client.training_samples(), client.experiment.train
    penalty = grad_hook.penalty(anchors, defined, client.model.device)
    seen = Running(penalty, len(samples), table) if running else None
    loss = cross_entropy(client.model, seen or penalty)
    trained = train(client.model, samples, table, client.stream("batches", round), loss=loss)
    check_alignment(trained, samples, grad_hook.weight, defined, grad_hook.key)
    client.keep_trained(round)
    return seen


def average(
    experiment: Experiment,
    uploads: Iterable[ClassMeans],
    weighting: str,
    anchors: Tensor,
    defined: Tensor,
    retain: bool = True,
) -> tuple[Tensor, Tensor]:
    """Mean of each class over the clients that hold it, or what `aggregate` says instead: (C, m) and (C,).

    A class that nobody holds keeps the prototype it had, or with `retain` off loses it.
    """
    means, counts = zip(*((one.means, one.counts) for one in uploads), strict=True)
    held = with_quorum(experiment, torch.stack(counts))  # (clients, C)
    weights = held if weighting == "count" else held.clamp(max=1)
    fresh, found = create_aggregator(experiment).merge(torch.stack(means), weights)
    kept = defined & ~found if retain else torch.zeros_like(defined)
    merged, known = torch.where(kept.unsqueeze(1), anchors, fresh), found | kept
    guards.anchors_cover(merged, known, [], held)
    return merged, known


def pairs(uploads: Iterable[ClassMeans]) -> tuple[Tensor, Tensor, Tensor]:
    """Every (client, class) prototype on its own, by client and class: (n, m), its class (n,), its count (n,)."""
    held = [(one.means[one.counts > 0], *one.counts.nonzero().T, one.counts[one.counts > 0]) for one in uploads]
    prototypes, labels, counts = (torch.cat(parts) for parts in zip(*held, strict=True))
    return prototypes, labels, counts


def contrastive_loss(
    embeddings: Tensor, labels: Tensor, anchors: Tensor, defined: Tensor, temperature: float
) -> Tensor:
    """Mean over the batch of -log softmax of the cosine to the own class's anchor against all known anchors.

    A sample whose class has no anchor contributes 0.
    """
    known = functional.normalize(torch.where(defined.unsqueeze(1), anchors, 0.0))  # (C, m)
    likeness = functional.normalize(embeddings) @ known.T / temperature  # (B, C)
    targets = torch.where(defined[labels], labels, defined.to(torch.uint8).argmax())  # any known one for the others
    losses = functional.cross_entropy(likeness.masked_fill(~defined, -torch.inf), targets, reduction="none")
    return torch.where(defined[labels], losses, 0.0).mean()


@dataclass(frozen=True)
class Steps:
    """How the server trains."""

    lr: float
    epochs: int
    batch: int


def fit(
    parameters: list[nn.Parameter],
    loss: Callable[[Tensor], Tensor],
    samples: int,
    order: np.random.Generator,
    steps: Steps,
) -> None:
    """The server's own training: plain SGD on `loss(rows)` over shuffled batches of the rows 0..samples-1.

    The rows are where the parameters are.
    """
    optimiser = FreshSgd(parameters, Train(lr=steps.lr, momentum=0.0, weight_decay=0.0))
    for _ in range(steps.epochs):
        for rows in torch.from_numpy(order.permutation(samples)).to(parameters[0].device).split(steps.batch):
            optimiser.step(loss(rows))
    if not all(torch.isfinite(parameter).all() for parameter in parameters):
        raise Diverged(f"training diverged; a smaller server-lr than {steps.lr} may help")
