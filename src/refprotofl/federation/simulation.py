"""A simulated federation: all data in one place, and the two sides that are built from them.

The engine of a simulation: the one process or the workers in which its clients run.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from refprotofl.core import numerics
from refprotofl.core.devices import CPU, assign_devices, make_repeatable
from refprotofl.core.process import keep_freed_memory
from refprotofl.core.state import State
from refprotofl.data import FederatedData, load_federated
from refprotofl.engines.engine import Engine, Record
from refprotofl.engines.local.engine import LocalEngine
from refprotofl.engines.local.host import ClientHost, InProcess
from refprotofl.engines.local.store import ClientStore, DiskBlobStore
from refprotofl.engines.local.workers import WorkerProcesses
from refprotofl.evaluation.scoring import TestSet
from refprotofl.experiment import Experiment
from refprotofl.federation.attackers import check_reach, recruited
from refprotofl.federation.client_side import ClientData, build_client_side
from refprotofl.federation.models import Models, prepare_models
from refprotofl.federation.resolution import prepare, resolve
from refprotofl.federation.sampling import draw_cohort
from refprotofl.federation.server_side import ServerSide, build_server_side
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.catalogue import find_method
from refprotofl.models import SplitModel
from refprotofl.privacy.accounting import Spent
from refprotofl.privacy.mechanisms import create_mechanism


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
    blobs: Callable[[Path], DiskBlobStore] = DiskBlobStore,
) -> ClientHost:
    """A place for all clients, whose private states lie in `folder`."""
    experiment, models = federation.experiment, federation.models
    make = None
    if experiment.attack.kind != "none":
        make = recruited(experiment, find_method(experiment.method).client, lambda one: federation.client(one).samples)
    return build_client_side(experiment, models, federation.client, folder, store=store, blobs=blobs, make=make)


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
    after = sum(map(create_mechanism(experiment).finetune_steps, own))
    return method.local_epochs(experiment) * sum(math.ceil(size / batch) for size in sizes) + after


def spent_after(federation: Federation, rounds: int) -> Spent | None:
    """What so many rounds have cost in privacy; who was asked in each follows from the seed."""
    experiment = federation.experiment
    asked = Counter(client for round in range(1, rounds + 1) for client in draw_cohort(experiment, round))
    participations = [asked[client] for client in range(experiment.clients)]
    return create_mechanism(experiment).spent(rounds, training_sizes(federation), participations)


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


@dataclass(frozen=True)
class Site:
    """What an engine is opened with."""

    federation: Federation
    records: Mapping[int, Record]  # of the last committed round, as the engine gave them
    folder: Path  # where it may keep its clients' states
    data_dir: Path | None
    workers: int
    kept: Mapping[int, Mapping[int, Record]] = field(default_factory=dict)  # records of rounds that may be gone back to


OpenEngine = Callable[[Site], Engine]


def open_engine(site: Site, *, patient: bool = False) -> LocalEngine:
    """One worker is this very process. A `patient` engine leaves all to its workers, however long they take to start.

    Others answer here meanwhile.
    """
    here = client_side(site.federation, site.folder)
    if site.workers == 1:
        return LocalEngine(lambda: InProcess(here), site.folder, site.records, site.kept)
    sizes = [len(indices) for indices in site.federation.data.client_indices]
    meanwhile = None if patient else here

    def start() -> WorkerProcesses:
        return WorkerProcesses(build_worker_host, worker_specifications(site), sizes, meanwhile)

    return LocalEngine(start, site.folder, site.records, site.kept)


def worker_specifications(site: Site) -> list[bytes]:
    """For every worker all that it needs to build its host."""
    plain = {
        "experiment": site.federation.experiment.plain(),
        "numerics": site.federation.experiment.numerics,
        "data": None if site.data_dir is None else str(site.data_dir),
        "folder": str(site.folder.absolute()),
        "seen_from": None if site.federation.seen_from is None else str(site.federation.seen_from),
    }
    devices = assign_devices(site.federation.device, site.workers)
    return [json.dumps({**plain, "device": str(device)}).encode() for device in devices]


def build_worker_host(specification: bytes) -> ClientHost:
    plain = json.loads(specification)
    numerics.apply(plain["numerics"])  # a worker of another framework may not inherit our environment
    torch.set_num_threads(1)
    keep_freed_memory()
    data_dir, seen_from = (None if plain[key] is None else Path(plain[key]) for key in ("data", "seen_from"))
    device = torch.device(plain["device"])
    make_repeatable(device)
    federation = load_federation(Experiment.parse(plain["experiment"]), data_dir, device, seen_from)
    return client_side(federation, Path(plain["folder"]))
