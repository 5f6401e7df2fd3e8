"""VHL, virtual homogeneity learning (Tang et al. 2022): FedAvg with a set of noise that all clients have in common.

The server is FedAvg's. A virtual class is paired with each natural one; features of both are drawn together.
"""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.experiment.tables import VHL
from refprotofl.methods import guards, sharing
from refprotofl.methods.base import Client
from refprotofl.methods.contrastive import supcon
from refprotofl.methods.training import Loss, Samples, train
from refprotofl.methods.virtual import virtual_batches, virtual_set
from refprotofl.models import SplitModel
from refprotofl.wire import Message

TEMPERATURE = 0.07


def virtual_loss(
    model: SplitModel,
    table: VHL,
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
    def train(self, round: int, message: Message) -> Message:
        received = sharing.load_shared(self, message)
        samples, order = self.training_samples(), self.stream("batches", round)
        trained = train(self.model, samples, self.experiment.train, order, loss=self.loss(round, samples))
        table = self.experiment.vhl
        guards.virtual_terms_counted(trained.penalty, table.alpha + table.w_align + table.w_virtual)
        return sharing.write_update(self, round, received, self.keep_trained(round))

    def loss(self, round: int, samples: Samples) -> Loss:
        table, size = self.experiment.vhl, self.experiment.train.batch_size
        draw = self.stream("virtual-batches", round)
        batches = virtual_batches(*virtual_set(self.experiment), size, draw, self.model.device)
        aligned_steps = table.align_epochs * -(-len(samples) // size)
        return virtual_loss(self.model, table, batches, self.num_classes, aligned_steps)

    def evaluate(self, round: int, message: Message) -> Message:
        return self.score(round, message["shared"])  # type: ignore[arg-type]
