"""A simulated federation: all data in one place, and the server side and the client side that are built from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from refprotofl.core import CPU, State
from refprotofl.core.inputs import fill_gaps
from refprotofl.data import FederatedData, load_federated
from refprotofl.data.federated import under
from refprotofl.engines import ClientHost, ClientStore, DiskBlobStore
from refprotofl.evaluation import TestSet
from refprotofl.experiment import Experiment
from refprotofl.federation.attackers import check_reach, recruited
from refprotofl.federation.client_side import ClientData, build_client_side
from refprotofl.federation.models import Models, prepare_models
from refprotofl.federation.participation import count_spent, count_steps
from refprotofl.federation.resolution import prepare, resolve
from refprotofl.federation.server_side import ServerSide, build_server_side
from refprotofl.federation.statistics import Exchanged, find_facts, stored_facts
from refprotofl.methods import Samples, find_method
from refprotofl.models import SplitModel
from refprotofl.privacy import Spent


@dataclass(frozen=True)
class Federation:
    """One experiment with its data; `experiment` is resolved, so nothing in it depends on defaults."""

    experiment: Experiment
    data: FederatedData
    models: Models
    device: torch.device = CPU
    seen_from: Path | None = None  # where a relative path of the data may start
    rule: str = ""  # of means, deviations and vocabulary
    exchanged: Sequence[Exchanged] = ()  # the clients' messages about their samples before the first round

    @property
    def model(self) -> SplitModel:
        """The server's model: that of client 0."""
        return self.models.by_name[self.experiment.backbones[0]]

    @cached_property
    def train_inputs(self) -> Tensor:
        """Inputs of the whole set, (N, …) on the device."""
        return torch.from_numpy(self.data.dataset.train_inputs).to(self.device)

    @cached_property
    def train_labels(self) -> Tensor:
        return torch.from_numpy(self.data.dataset.train_labels)

    @cached_property
    def test_inputs(self) -> Tensor:
        """Inputs that models are scored on, (T, …) on the device."""
        return torch.from_numpy(self.data.test_inputs).to(self.device)

    @cached_property
    def test_labels(self) -> Tensor:
        return torch.from_numpy(self.data.test_labels)

    def client(self, number: int) -> ClientData:
        """Return a client's data: rows of the whole set, which is never copied."""
        rows = torch.from_numpy(self.data.client_indices[number])
        own = np.searchsorted(self.data.test_indices, self.data.own_test_indices[number])
        test = TestSet(self.test_inputs, self.test_labels, torch.from_numpy(own))
        return ClientData(Samples(self.train_inputs, self.train_labels, rows), test)


def load_federation(
    experiment: Experiment,
    data_dir: Path | None,
    device: torch.device = CPU,
    seen_from: Path | None = None,
    *,
    resolved_before: bool = False,
) -> Federation:
    """Load an experiment's data and fill in what they decide, but for facts about them where it is resolved already."""
    experiment = prepare(experiment).model_copy(update={"device": device.type})
    data = load_federated(experiment, data_dir, seen_from)
    found = stored_facts(experiment.known_input) if resolved_before else find_facts(experiment, data)
    resolved = resolve(experiment, data, found)
    data = replace(under(data, resolved.known_input), notes=(*data.notes, *found.notes))
    return Federation(resolved, data, prepare_models(resolved, device), device, seen_from, found.rule, found.exchanged)


def server_side(federation: Federation) -> ServerSide:
    experiment = federation.experiment
    pooled = pooled_samples(federation) if find_method(experiment.method).pooled else None
    test = federation.test_inputs, federation.test_labels
    side = build_server_side(
        experiment,
        federation.models,
        public=public_samples(federation.data, experiment.known_input.mean),
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
    blobs: Callable[[Path], DiskBlobStore] = DiskBlobStore,
) -> ClientHost:
    """Return a host for all clients, whose private states are kept in `folder`."""
    experiment, models = federation.experiment, federation.models
    make = None
    if experiment.attack.kind != "none":
        make = recruited(experiment, find_method(experiment.method).client, lambda one: federation.client(one).samples)
    return build_client_side(experiment, models, federation.client, folder, store=store, blobs=blobs, make=make)


def training_sizes(federation: Federation) -> list[int]:
    """Return the number of samples that each client trains on."""
    data = federation.data
    public = data.public_size if federation.experiment.public.train_on else 0
    return [len(own) + public for own in data.client_indices]


def steps_of_round(federation: Federation, clients: Sequence[int], closing: Sequence[int]) -> int:
    """Return the optimiser steps of a round of these clients, `closing` being those that train after the last one.

    Without federation they are those of the one model.
    """
    experiment, sizes = federation.experiment, training_sizes(federation)
    pooled = find_method(experiment.method).pooled
    own = [len(federation.data.client_indices[client]) for client in closing]
    return count_steps(
        experiment, [len(pooled_samples(federation))] if pooled else [sizes[client] for client in clients], own
    )


def spent_after(federation: Federation, rounds: int) -> Spent | None:
    """Return the privacy spent in the first rounds."""
    return count_spent(federation.experiment, training_sizes(federation), rounds)


def public_samples(data: FederatedData, means: Sequence[float]) -> Samples | None:
    """Return the public set, with `means` for missing values."""
    if not data.public_size:
        return None
    images, labels = torch.from_numpy(fill_gaps(data.public_inputs, means)), torch.from_numpy(data.public_labels)
    return Samples(images, labels, torch.arange(len(labels)))


def pooled_samples(federation: Federation) -> Samples:
    """Return the training samples of all clients together."""
    data, joins = federation.data, federation.experiment.public.train_on
    rows = np.sort(np.concatenate([*data.client_indices, *([data.public_indices] if joins else [])]))
    pooled = Samples(federation.train_inputs, federation.train_labels, torch.from_numpy(rows))
    if joins and data.own_public is not None:
        images, labels = data.own_public
        return pooled.joined(torch.from_numpy(images), torch.from_numpy(labels))
    return pooled
