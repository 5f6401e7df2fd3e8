"""Global prototypes that the server trains: an embedding of each class, behind two layers that all classes share."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from refprotofl.core.streams import stream
from refprotofl.methods.base import guards
from refprotofl.methods.common import prototype_learning as learning

EXACT = "donot_use_mm_for_euclid_dist"  # differences, not products: small distances keep their digits


def initial(seed: int, num_classes: int, width: int) -> Tensor:
    """The generator's weights as one vector, drawn as torch would draw an Embedding and two Linear layers."""
    draw, bound = stream(seed, "global-prototypes"), 1 / math.sqrt(width)
    table = draw.standard_normal(num_classes * width)
    layers = draw.uniform(-bound, bound, 2 * (width * width + width))
    return torch.from_numpy(np.concatenate([table, layers])).to(torch.float32)


def generate(parts: Sequence[Tensor]) -> Tensor:
    """The global prototypes (C, m) from the generator's five tensors."""
    table, weight, bias, last_weight, last_bias = parts
    return functional.linear(torch.relu(functional.linear(table, weight, bias)), last_weight, last_bias)


def split(generator: Tensor, num_classes: int, width: int) -> list[Tensor]:
    shapes = [(num_classes, width), (width, width), (width,), (width, width), (width,)]
    parts = generator.split([math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def gaps(prototypes: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Of each class the distance from its mean prototype to the nearest other class's, (C,).

    A class without prototypes gets the least gap of all; if there is but one class, every gap is infinite.
    """
    held = labels.unique()
    means = torch.stack([prototypes[labels == one].to(torch.float64).mean(dim=0) for one in held])
    distances = torch.cdist(means, means, compute_mode=EXACT).fill_diagonal_(torch.inf)
    nearest = distances.min(dim=1).values.to(torch.float32)
    return torch.full((num_classes,), float(nearest.min())).index_copy(0, held, nearest)


def margin_loss(prototypes: Tensor, labels: Tensor, anchors: Tensor, seen: Tensor, margins: Tensor) -> Tensor:
    """Cross-entropy over minus the distances to the anchors of seen classes, the own one's enlarged by its margin.

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
    steps: learning.Steps,
) -> tuple[Tensor, Tensor]:
    """The generator after training on the clients' prototypes (n, m), and its global prototypes (C, m)."""
    shape = (len(seen), prototypes.shape[1])
    parameters = [nn.Parameter(part.clone()) for part in split(generator, *shape)]

    def loss(rows: Tensor) -> Tensor:
        return margin_loss(prototypes[rows], labels[rows], generate(parameters), seen, margins)

    learning.fit(parameters, loss, len(labels), order, steps)
    with torch.no_grad():
        trained, anchors = torch.cat([part.flatten() for part in parameters]), generate(parameters)
    if int(seen.sum()) > 1:  # one class alone has nothing to be told from
        guards.server_moved(generator, trained, "the global prototypes")
    return trained, anchors
