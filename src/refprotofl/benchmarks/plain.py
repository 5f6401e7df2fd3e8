"""The yardstick of `bench overhead`: what a run has to compute, done by the plainest loop there is."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from refprotofl.basics.streams import stream
from refprotofl.data import FederatedData
from refprotofl.experiment import Experiment
from refprotofl.experiment.tables import Train
from refprotofl.methods.builtin.refprotofl.masked import sends_prototypes
from refprotofl.models import FORWARD_BATCH, SplitModel
from refprotofl.simulation.assembly import Federation
from refprotofl.simulation.draws import draw_cohort, draw_evaluated


@dataclass(frozen=True)
class Work:
    """All that the rounds of a RefProtoFL run compute with a model."""

    images: Tensor  # (N, channels, H, W) uint8
    labels: Tensor  # (N,)
    batches: list[list[Tensor]]  # rows of each batch, for every client that trains in a round
    forwards: list[Tensor]  # images that pass forward: of prototypes, for every client and round; of evaluations

    @property
    def steps(self) -> int:
        return sum(len(batches) for batches in self.batches)

    @property
    def samples(self) -> int:
        return sum(len(rows) for batches in self.batches for rows in batches)

    @property
    def forward_images(self) -> int:
        return sum(len(images) for images in self.forwards)


def work_of(federation: Federation) -> Work:
    """The same clients, samples and batches, in the same order, as the run of this experiment."""
    experiment, data = federation.experiment, federation.data
    images, labels = torch.from_numpy(data.dataset.train_images), torch.from_numpy(data.dataset.train_labels)
    public, tests = torch.from_numpy(data.public_images), torch.from_numpy(data.test_images)
    batches, forwards = [], []
    for round in range(1, experiment.rounds + 1):
        for client in draw_cohort(experiment, round):
            batches.append(client_batches(experiment, data, client, round))
            if uploads_prototypes(experiment, round):
                forwards += [public, images[uncovered(data, client)]]
        if round % experiment.evaluate.every == 0 or round == experiment.rounds:
            forwards += [tests for _ in draw_evaluated(experiment)]
    return Work(images, labels, batches, forwards)


def client_batches(experiment: Experiment, data: FederatedData, client: int, round: int) -> list[Tensor]:
    public = [data.public_indices] if experiment.public.train_on else []
    rows = torch.from_numpy(np.concatenate([data.client_indices[client], *public]))
    order = stream(experiment.seed, "batches", client=client, round=round)
    shuffled = [rows[torch.from_numpy(order.permutation(len(rows)))] for _ in range(experiment.train.local_epochs)]
    return [batch for epoch in shuffled for batch in epoch.split(experiment.train.batch_size)]


def uploads_prototypes(experiment: Experiment, round: int) -> bool:
    table = experiment.refprotofl
    return sends_prototypes(table, round) or (
        table.erpa and table.timing == "pre-train" and round > table.warmup_rounds
    )


def uncovered(data: FederatedData, client: int) -> Tensor:
    """Rows of the client's samples whose class has no public images: their prototypes are the client's own."""
    rows = data.client_indices[client]
    return torch.from_numpy(rows[~np.isin(data.dataset.train_labels[rows], data.public_classes)])


def train_plainly(model: SplitModel, images: Tensor, labels: Tensor, batches: Iterable[Tensor], table: Train) -> None:
    """Mean cross-entropy down by SGD over these batches, with a fresh optimiser."""
    optimiser = torch.optim.SGD(
        model.parameters(), lr=table.lr, momentum=table.momentum, weight_decay=table.weight_decay, fused=True
    )
    model.train()
    for rows in batches:
        inputs = model.prepare(images.index_select(0, rows))
        loss = functional.cross_entropy(model(inputs), labels.index_select(0, rows))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


@torch.no_grad()
def forward_plainly(model: SplitModel, images: Tensor) -> None:
    model.eval()
    for batch in images.split(FORWARD_BATCH):
        model(model.prepare(batch))
