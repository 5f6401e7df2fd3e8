"""VHL, virtual homogeneity learning (Tang et al. 2022): FedAvg with a set of noise that all clients have in common.

The server is FedAvg's. A virtual class is paired with each natural one; features of both are drawn together.
"""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.methods.builtin.vhl import Options
from refprotofl.methods.builtin.vhl.contrastive import supcon
from refprotofl.methods.builtin.vhl.virtual import virtual_batches, virtual_set
from refprotofl.methods.common import weights
from refprotofl.methods.core import guards
from refprotofl.methods.core.client import Client
from refprotofl.methods.core.fields import Received
from refprotofl.methods.core.samples import Samples
from refprotofl.methods.core.training import Loss, train
from refprotofl.models import SplitModel
from refprotofl.wire import Message

TEMPERATURE = 0.07


def virtual_loss(
    model: SplitModel,
    table: Options,
    batches: Iterator[tuple[Tensor, Tensor]],
    num_classes: int,
    aligned_steps: int,
) -> Loss:
    """The loss of one natural batch with the next virtual one; alignment ends after `aligned_steps` batches."""
    steps = itertools.count()

    def loss(inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        virtual, paired = next(batches)  # (V, channels, H, W), (V,)
        embeddings = model.embed(torch.cat([inputs, virtual]))  # (B + V, m), in one pass
        logits = model.head(embeddings)  # (B + V, C + C)
        natural = functional.cross_entropy(logits[: len(labels)], labels)
        extra = table.alpha * functional.cross_entropy(logits[len(labels) :], num_classes + paired)
        if next(steps) < aligned_steps:
            rows = functional.normalize(embeddings)
            fixed = torch.cat([rows[: len(labels)], rows[len(labels) :].detach()])  # natural ones move, virtual stay
            extra = extra + table.w_align * supcon(fixed, torch.cat([labels, paired]), TEMPERATURE)
            extra = extra + table.w_virtual * supcon(rows[len(labels) :], paired, TEMPERATURE)
        return natural + extra, extra

    return loss


class VHLClient(Client):
    options: Options

    def train(self, round: int, message: Received) -> Message:
        received = weights.load_shared(self, message)
        samples, order = self.training_samples(), self.stream("batches", round)
        trained = train(self.model, samples, self.experiment.train, order, loss=self.loss(round, samples))
        table = self.options
        guards.virtual_terms_counted(trained.penalty, table.alpha + table.w_align + table.w_virtual)
        return weights.write_update(self, round, received, self.keep_trained(round))

    def loss(self, round: int, samples: Samples) -> Loss:
        table, size = self.options, self.experiment.train.batch_size
        draw = self.stream("virtual-batches", round)
        batches = virtual_batches(*virtual_set(self.experiment, table), size, draw, self.model.device)
        aligned_steps = table.align_epochs * -(-len(samples) // size)
        return virtual_loss(self.model, table, batches, self.num_classes, aligned_steps)

    def evaluate(self, round: int, message: Received) -> Message:
        return self.score(round, message.tensor("shared"))
