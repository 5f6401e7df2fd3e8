"""Learning from class prototypes: collecting, averaging and aligning to them, and prototypes that the server trains."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from refprotofl.core import CPU, stream
from refprotofl.experiment import Experiment, Train
from refprotofl.methods import (
    Client,
    Penalty,
    Samples,
    check_alignment,
    class_means,
    create_aggregator,
    cross_entropy,
    erpa,
    minimise,
)
from refprotofl.methods.base import guards
from refprotofl.methods.common.prototypes import ClassMeans, with_quorum


@dataclass(frozen=True)
class Alignment:
    """The weight with which embeddings are drawn to their class's anchor, and the key that sets it."""

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

    def __init__(self, penalty: Penalty | None, samples: int, settings: Train) -> None:
        self._penalty = penalty
        self._skip = settings.steps(samples) - settings.steps_per_epoch(samples)  # batches before the last epoch
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
    """Return class means with the weights that are loaded, in evaluation mode; `unit`: of embeddings of length 1.

    Where samples are protected the means are noised: they are made of the samples themselves.
    """
    return ClassMeans(*class_means(client, samples, unit=unit))


def train_towards(
    client: Client, round: int, anchors: Tensor, defined: Tensor, alignment: Alignment, *, running: bool = False
) -> Running | None:
    """Train the client's own model towards the anchors, (C, m) and (C,); with `running`, return the embeddings seen."""
    client.load()
    samples = client.training_samples()
    penalty = alignment.penalty(anchors, defined, client.model.device)
    seen = Running(penalty, len(samples), client.experiment.train) if running else None
    loss = cross_entropy(client.model, seen or penalty)
    trained = client.fit(round, samples=samples, loss=loss)
    check_alignment(trained, samples, alignment.weight, defined, alignment.key)
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
    """Merge the prototypes of each class over the clients that hold it, by the aggregator: (C, m) and (C,).

    A class that no client holds keeps the prototype it had, or with `retain` off loses it.
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
    """Return every (client, class) prototype, by client and class: (n, m), with its class (n,) and count (n,)."""
    held = [(one.means[one.counts > 0], *one.counts.nonzero().T, one.counts[one.counts > 0]) for one in uploads]
    prototypes, labels, counts = (torch.cat(parts) for parts in zip(*held, strict=True))
    return prototypes, labels, counts


def contrastive_loss(
    embeddings: Tensor, labels: Tensor, anchors: Tensor, defined: Tensor, temperature: float
) -> Tensor:
    """Return the batch mean of -log softmax of the cosine to the own class's anchor against all known anchors.

    A sample whose class has no anchor contributes 0.
    """
    known = functional.normalize(torch.where(defined.unsqueeze(1), anchors, 0.0))  # (C, m)
    likeness = functional.normalize(embeddings) @ known.T / temperature  # (B, C)
    targets = torch.where(defined[labels], labels, defined.to(torch.uint8).argmax())  # any known one for the others
    losses = functional.cross_entropy(likeness.masked_fill(~defined, -torch.inf), targets, reduction="none")
    return torch.where(defined[labels], losses, 0.0).mean()


EXACT = "donot_use_mm_for_euclid_dist"  # differences, not products: small distances keep their digits


def initial(seed: int, num_classes: int, width: int) -> Tensor:
    """Return the generator's weights as one vector, drawn as torch draws an Embedding and two Linear layers."""
    draw, bound = stream(seed, "global-prototypes"), 1 / math.sqrt(width)
    table = draw.standard_normal(num_classes * width)
    layers = draw.uniform(-bound, bound, 2 * (width * width + width))
    return torch.from_numpy(np.concatenate([table, layers])).to(torch.float32)


def generate(parts: Sequence[Tensor]) -> Tensor:
    """Return the global prototypes (C, m) of the generator's five tensors."""
    table, weight, bias, last_weight, last_bias = parts
    return functional.linear(torch.relu(functional.linear(table, weight, bias)), last_weight, last_bias)


def split(generator: Tensor, num_classes: int, width: int) -> list[Tensor]:
    shapes = [(num_classes, width), (width, width), (width,), (width, width), (width,)]
    parts = generator.split([math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def gaps(prototypes: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Return each class's distance from its mean prototype to that of the nearest other class, (C,).

    A class without prototypes gets the smallest gap of all; with a single class every gap is infinite.
    """
    held = labels.unique()
    means = torch.stack([prototypes[labels == one].to(torch.float64).mean(dim=0) for one in held])
    distances = torch.cdist(means, means, compute_mode=EXACT).fill_diagonal_(torch.inf)
    nearest = distances.min(dim=1).values.to(torch.float32)
    return torch.full((num_classes,), float(nearest.min())).index_copy(0, held, nearest)


def margin_loss(prototypes: Tensor, labels: Tensor, anchors: Tensor, seen: Tensor, margins: Tensor) -> Tensor:
    """Return the cross-entropy over minus the distances to the anchors of seen classes, the own one's plus its margin.

    (n, m), (n,), (C, m), (C,), (C,) -> scalar.
    """
    distances = torch.cdist(prototypes, anchors, compute_mode=EXACT)  # (n, C)
    own = functional.one_hot(labels, len(anchors)).to(torch.bool)
    distances = torch.where(own, distances + margins, distances)
    return functional.cross_entropy(-distances.masked_fill(~seen, torch.inf), labels)


def retrained(
    generator: Tensor,
    prototypes: Tensor,
    labels: Tensor,
    seen: Tensor,
    margins: Tensor,
    order: np.random.Generator,
    settings: Train,
) -> tuple[Tensor, Tensor]:
    """Return the generator after training on the clients' prototypes (n, m), and its global prototypes (C, m)."""
    shape = (len(seen), prototypes.shape[1])
    parameters = [nn.Parameter(part.clone()) for part in split(generator, *shape)]

    def loss(rows: Tensor) -> Tensor:
        return margin_loss(prototypes[rows], labels[rows], generate(parameters), seen, margins)

    minimise(parameters, loss, len(labels), settings, order)
    with torch.no_grad():
        trained, anchors = torch.cat([part.flatten() for part in parameters]), generate(parameters)
    if int(seen.sum()) > 1:  # a single class has no other to be separated from
        guards.server_moved(generator, trained, "the global prototypes")
    return trained, anchors
