"""A simulated federation: all data in one place, and the two sides that are built from them."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from refprotofl.attacks.client import check_reach, recruited
from refprotofl.basics.state import State
from refprotofl.compute.devices import CPU
from refprotofl.data import FederatedData, load_federated
from refprotofl.engines.local.host import ClientHost
from refprotofl.engines.local.shelf import DiskShelf
from refprotofl.engines.local.store import ClientStore
from refprotofl.evaluation.scoring import TestSet
from refprotofl.experiment import Experiment
from refprotofl.methods.catalogue import find_method
from refprotofl.methods.core.samples import Samples
from refprotofl.models import SplitModel
from refprotofl.privacy.accounting import Spent, spent
from refprotofl.sides.client import ClientData, build_client_side
from refprotofl.sides.models import Models, prepare_models
from refprotofl.sides.server import ServerSide, build_server_side
from refprotofl.simulation.draws import draw_cohort
from refprotofl.simulation.resolving import prepare, resolve


@dataclass(frozen=True)
class Federation:
    """One experiment with its data; `experiment` is resolved, so nothing in it depends on defaults."""

    experiment: Experiment
    data: FederatedData
    models: Models
    device: torch.device = CPU
    seen_from: Path | None = None  # where a relative path of the data may start

    @property
    def model(self) -> SplitModel:
        """The server's: that of client 0."""
        return self.models.by_name[self.experiment.backbones[0]]

    @cached_property
    def train_images(self) -> Tensor:
        """Of the whole set, (N, channels, H, W) uint8 on the device."""
        return torch.from_numpy(self.data.dataset.train_images).to(self.device)

    @cached_property
    def train_labels(self) -> Tensor:
        return torch.from_numpy(self.data.dataset.train_labels)

    @cached_property
    def test_images(self) -> Tensor:
        """Those that are evaluated, (T, channels, H, W) uint8 on the device."""
        return torch.from_numpy(self.data.test_images).to(self.device)

    @cached_property
    def test_labels(self) -> Tensor:
        return torch.from_numpy(self.data.test_labels)

    def client(self, number: int) -> ClientData:
        """Rows of the whole set, which is never copied."""
        rows = torch.from_numpy(self.data.client_indices[number])
        own = np.searchsorted(self.data.test_indices, self.data.own_test_indices[number])
        test = TestSet(self.test_images, self.test_labels, torch.from_numpy(own))
        return ClientData(Samples(self.train_images, self.train_labels, rows), test)


def load_federation(
    experiment: Experiment, data_dir: Path | None, device: torch.device = CPU, seen_from: Path | None = None
) -> Federation:
    experiment = prepare(experiment).model_copy(update={"device": device.type})
    data = load_federated(experiment, data_dir, seen_from)
    resolved = resolve(experiment, data)
    return Federation(resolved, data, prepare_models(resolved, device), device, seen_from)


def server_side(federation: Federation) -> ServerSide:
    experiment = federation.experiment
    pooled = pooled_samples(federation) if find_method(experiment.method).pooled else None
    test = federation.test_images, federation.test_labels
    side = build_server_side(
        experiment,
        federation.models,
        public=public_samples(federation.data),
        test=test,
        pooled=pooled,
        most_samples=max(training_sizes(federation)),
        own_tested=[len(own) for own in federation.data.own_test_indices],
    )
    check_reach(experiment, side.server.messages)
    return side


def client_side(
    federation: Federation,
    folder: Path,
    store: Callable[[Path, Callable[[int], State]], ClientStore] = ClientStore,
    shelf: Callable[[Path], DiskShelf] = DiskShelf,
) -> ClientHost:
    """A place for all clients, whose private states lie in `folder`."""
    experiment, models = federation.experiment, federation.models
    make = None
    if experiment.attack.kind != "none":
        make = recruited(experiment, find_method(experiment.method).client, lambda one: federation.client(one).samples)
    return build_client_side(experiment, models, federation.client, folder, store=store, shelf=shelf, make=make)


def training_sizes(federation: Federation) -> list[int]:
    """How many samples each client trains on."""
    data = federation.data
    public = data.public_size if federation.experiment.public.train_on else 0
    return [len(own) + public for own in data.client_indices]


def steps_of_round(federation: Federation, clients: Sequence[int], closing: Sequence[int]) -> int:
    """Of the optimisers of these clients in one round, and of some after the last; without federation of the one."""
    experiment = federation.experiment
    method, batch = find_method(experiment.method), experiment.train.batch_size
    if method.pooled:
        sizes = [len(pooled_samples(federation))]
    else:
        of_all = training_sizes(federation)
        sizes = [of_all[client] for client in clients]
    own = [len(federation.data.client_indices[client]) for client in closing]
    after = sum(method.closing_steps(experiment, samples) for samples in own)
    return method.local_epochs(experiment) * sum(math.ceil(size / batch) for size in sizes) + after


def spent_after(federation: Federation, rounds: int) -> Spent | None:
    """What so many rounds have cost in privacy; who was asked in each follows from the seed."""
    experiment = federation.experiment
    asked = Counter(client for round in range(1, rounds + 1) for client in draw_cohort(experiment, round))
    return spent(experiment, rounds, training_sizes(federation), [asked[one] for one in range(experiment.clients)])


def public_samples(data: FederatedData) -> Samples | None:
    if not data.public_size:
        return None
    images, labels = torch.from_numpy(data.public_images), torch.from_numpy(data.public_labels)
    return Samples(images, labels, torch.arange(len(labels)))


def pooled_samples(federation: Federation) -> Samples:
    """What all clients train on, in one place."""
    data, joins = federation.data, federation.experiment.public.train_on
    rows = np.sort(np.concatenate([*data.client_indices, *([data.public_indices] if joins else [])]))
    pooled = Samples(federation.train_images, federation.train_labels, torch.from_numpy(rows))
    if joins and data.own_public is not None:
        images, labels = data.own_public
        return pooled.joined(torch.from_numpy(images), torch.from_numpy(labels))
    return pooled
