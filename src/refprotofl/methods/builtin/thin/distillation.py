"""Ensemble distillation at the server, over mixtures of public images (FedDF, Lin et al. 2020; Zhang et al. 2018).

The averaged model does not predict what the models predict on average. So the server evaluates each uploaded model on
mixtures of two public images and trains the mean model towards their mean prediction. No byte is sent for it, and no
model is kept: each predicts as it is read. A client's model is biased towards the client's own class mix. Its
predictions on all pictures, whose mix the server knows, show by how much, so that they can be corrected.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.core import Parts
from refprotofl.methods import Loss, classify, cross_entropy, embed
from refprotofl.models import SplitModel


def mixtures(inputs: Tensor, count: int, order: np.random.Generator) -> Tensor:
    """Return `count` inputs (count, …), each a random convex mix of two."""
    pairs = torch.from_numpy(order.integers(0, len(inputs), (2, count)))
    shares = torch.from_numpy(order.random(count, np.float32)).view(-1, *(1,) * (inputs.dim() - 1)).to(inputs.device)
    first, second = (inputs[rows.to(inputs.device)].to(torch.float32) for rows in pairs)
    mixed = shares * first + (1 - shares) * second
    return mixed if inputs.is_floating_point() else mixed.round().to(torch.uint8)


LEAST = 1e-6  # the least share of a class in a model's predictions, against division by 0


def balanced(probabilities: Tensor, mix: Tensor) -> Tensor:
    """Correct probabilities (count, classes) to those of a model that predicts classes as often as `mix`.

    Bayes' rule, with the frequency of the model's predictions as its prior. A class without pictures keeps its
    probability.
    """
    prior = probabilities.mean(dim=0).clamp_min(LEAST)  # (classes,)
    weighted = probabilities * (mix / prior)  # 0 for classes without pictures
    rest = torch.where(mix > 0, 0.0, probabilities)
    shares = weighted / weighted.sum(dim=1, keepdim=True).clamp_min(torch.finfo(weighted.dtype).tiny)
    return shares * (1 - rest.sum(dim=1, keepdim=True)) + rest


class Ensemble:
    """The mean prediction of a round's models on mixed images, accumulated as the models are read."""

    def __init__(
        self, model: SplitModel, parts: Parts, classes: int, pictures: Tensor, mix: Tensor | None = None
    ) -> None:
        """Take the pictures; `mix` is the share of each class in them, if predictions are to be corrected by it."""
        self._model, self._parts = model, parts
        self._pictures, self._mix = pictures, mix
        self._total = torch.zeros(len(pictures), classes, dtype=torch.float64)
        self._weight = 0.0

    def add(self, vector: Tensor, weight: float) -> None:
        """Add one client's predictions, unless they are not finite."""
        self._model.write(self._parts, vector)
        logits = classify(self._model, embed(self._model, self._pictures))[:, : self._total.shape[1]]
        found = logits.to(torch.float64).softmax(dim=1)
        if self._mix is not None:
            found = balanced(found, self._mix)
        if found.isfinite().all():
            self._total += weight * found
            self._weight += weight

    @property
    def predictions(self) -> Tensor:
        """The mean probability of each class in each picture, (count, classes)."""
        return (self._total / max(self._weight, 1e-12)).to(torch.float32)

    def loss(self, strength: float) -> Loss:
        """Return the cross-entropy of a batch, and of as many pictures, in turn, towards their mean predictions."""
        known, targets, start = cross_entropy(self._model), self.predictions.to(self._model.device), 0

        def loss(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
            nonlocal start
            turn = slice(start, start + len(labels))
            start += len(labels)
            seen = self._model.head(self._model.embed(self._model.prepare(self._pictures[turn])))
            distilled = strength * functional.cross_entropy(seen[:, : targets.shape[1]], targets[turn])
            return known(inputs, labels)[0] + distilled, distilled

        return loss
