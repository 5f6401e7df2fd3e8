"""MOON (Li et al. 2021): embeddings stay close to the received model's and away from those of the last own one."""

import copy

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.core import tensor_of
from refprotofl.methods import FedAvgClient, Loss, ValidatedMessage, check_alignment
from refprotofl.methods.builtin.moon import Options
from refprotofl.methods.common import weights
from refprotofl.models import SplitModel
from refprotofl.wire import Message


def contrastive_loss(current: Tensor, received: Tensor, previous: Tensor, temperature: float) -> Tensor:
    """Return the batch mean of -log(e^p / (e^p + e^n)), all embeddings (B, m).

    p and n are the cosines of the current embedding with those of the received and of the previous model, divided by
    the temperature.
    """
    positive = functional.cosine_similarity(current, received, dim=1) / temperature  # (B,)
    negative = functional.cosine_similarity(current, previous, dim=1) / temperature  # (B,)
    return functional.softplus(negative - positive).mean()


def frozen_copy(model: SplitModel) -> SplitModel:
    return copy.deepcopy(model).eval().requires_grad_(False)


class MoonClient(FedAvgClient):
    options: Options

    def train(self, round: int, message: ValidatedMessage) -> Message:
        received = weights.load_shared(self, message)
        samples, loss = self.training_samples(), self.contrast()
        trained = self.fit(round, samples=samples, loss=loss)
        weight = self.options.weight if loss else 0.0
        check_alignment(trained, samples, weight, torch.ones(self.num_classes, dtype=torch.bool), "moon.weight")
        return weights.write_update(self, round, received, self.keep_trained(round))

    def contrast(self) -> Loss | None:
        """Return cross-entropy with contrast; None before the client has a model of its own, or without weight."""
        if self.options.weight == 0 or "trained" not in self.state:
            return None
        received, previous = frozen_copy(self.model), frozen_copy(self.model)
        previous.write(self.parts, tensor_of(self.state, "trained"))
        weight, temperature = self.options.weight, self.options.temperature

        def loss(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            embeddings = self.model.embed(inputs)  # (B, m)
            with torch.no_grad():
                near, far = received.embed(inputs), previous.embed(inputs)
            contrast = weight * contrastive_loss(embeddings, near, far, temperature)
            return functional.cross_entropy(self.model.head(embeddings), labels) + contrast, contrast

        return loss
