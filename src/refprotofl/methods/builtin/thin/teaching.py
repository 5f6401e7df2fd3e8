"""What the clients' models say together, taught to the mean of their weights by pictures that cost nothing.

The mean of weights is not the mean of what the models would say. So the server asks each upload's model what it sees in
mixtures of two public images each, and draws the mean model towards all their answers (ensemble distillation: FedDF,
Lin et al. 2020; mixtures: Zhang et al. 2018). No byte is sent for it, and no model is kept: each says its part as it
is read.

A client knows its own mix of classes, and its model leans towards it. How far it leans is seen from what it says of all
pictures together, whose mix the server knows; so its answers can be set right before they count.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.core.parts import Parts
from refprotofl.methods.base.training import Loss, classify, cross_entropy, embed
from refprotofl.models import SplitModel


def mixtures(images: Tensor, count: int, order: np.random.Generator) -> Tensor:
    """So many pictures (count, channels, H, W) uint8, each a share of one image and the rest of another."""
    pairs = torch.from_numpy(order.integers(0, len(images), (2, count)))
    shares = torch.from_numpy(order.random(count, np.float32)).view(-1, 1, 1, 1).to(images.device)
    first, second = (images[rows.to(images.device)].to(torch.float32) for rows in pairs)
    return (shares * first + (1 - shares) * second).round().to(torch.uint8)


LEAST = 1e-6  # a class that a model all but never names is taken to have this share


def balanced(said: Tensor, mix: Tensor) -> Tensor:
    """Probabilities (count, classes), drawn to those of a model that names classes as often as they are, `mix`.

    As by Bayes' rule, with how often it names a class for its prior. Of a class that no picture is of nothing is known:
    what the model says of it stays.
    """
    named = said.mean(dim=0).clamp_min(LEAST)
    weighed = said * (mix / named)  # of classes that there are pictures of
    rest = torch.where(mix > 0, 0.0, said)
    shares = weighed / weighed.sum(dim=1, keepdim=True).clamp_min(torch.finfo(weighed.dtype).tiny)
    return shares * (1 - rest.sum(dim=1, keepdim=True)) + rest


class Lesson:
    """The pictures of a round, and what was said of them so far."""

    def __init__(
        self, model: SplitModel, parts: Parts, classes: int, pictures: Tensor, mix: Tensor | None = None
    ) -> None:
        """`mix`: the share of each class in the pictures, if answers are to be set right by it."""
        self._model, self._parts = model, parts
        self._pictures, self._mix = pictures, mix
        self._said = torch.zeros(len(pictures), classes, dtype=torch.float64)
        self._weight = 0.0

    def hear(self, vector: Tensor, weight: float) -> None:
        """One client's model; whose answers are no numbers is not listened to."""
        self._model.write(self._parts, vector)
        logits = classify(self._model, embed(self._model, self._pictures))[:, : self._said.shape[1]]
        said = logits.to(torch.float64).softmax(dim=1)
        if self._mix is not None:
            said = balanced(said, self._mix)
        if said.isfinite().all():
            self._said += weight * said
            self._weight += weight

    @property
    def answers(self) -> Tensor:
        """The probability of each class in each picture, (count, classes)."""
        return (self._said / max(self._weight, 1e-12)).to(torch.float32)

    def loss(self, strength: float) -> Loss:
        """Cross-entropy of a batch, and of as many pictures, which come in turn, towards what was said of them."""
        known, answers, start = cross_entropy(self._model), self.answers.to(self._model.device), 0

        def loss(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
            nonlocal start
            turn = slice(start, start + len(labels))
            start += len(labels)
            seen = self._model.head(self._model.embed(self._model.prepare(self._pictures[turn])))
            taught = strength * functional.cross_entropy(seen[:, : answers.shape[1]], answers[turn])
            return known(inputs, labels)[0] + taught, taught

        return loss
