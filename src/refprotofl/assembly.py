"""Puts a simulated federation together: data, server, and the hosts where its clients live."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from refprotofl.data import FederatedData, federate, load_dataset
from refprotofl.engines.host import ClientHost
from refprotofl.evaluation import TestSet
from refprotofl.experiment import Experiment, Input
from refprotofl.methods import find_method
from refprotofl.methods.base import Seat, Server
from refprotofl.methods.training import Samples
from refprotofl.models import SplitModel, build_model
from refprotofl.records.clients import ClientStore, DiskShelf
from refprotofl.state import State


@dataclass(frozen=True)
class Federation:
    """One experiment with its data; `experiment` is resolved, so nothing in it depends on defaults."""

    experiment: Experiment
    data: FederatedData
    model: SplitModel

    @property
    def initial_state(self) -> State:
        """What every client starts from."""
        return initial_state(self.experiment, self.model)


def load_federation(experiment: Experiment, data_dir: Path | None) -> Federation:
    find_method(experiment.method)
    dataset = load_dataset(experiment.dataset, data_dir, experiment.seed)
    data = federate(experiment, dataset)
    resolved = resolve(experiment, data)
    return Federation(resolved, data, model_of(resolved))


def model_of(experiment: Experiment) -> SplitModel:
    """The model that the experiment's method works with, with its initial weights."""
    return build_model(experiment, find_method(experiment.method).extra_outputs(experiment))


def initial_state(experiment: Experiment, model: SplitModel) -> State:
    return dict(model.read_private(find_method(experiment.method).shared(experiment)))


def resolve(experiment: Experiment, data: FederatedData) -> Experiment:
    """The experiment with everything filled in that the data decide."""
    dataset, covered = data.dataset, data.public_classes
    seen = Input(class_names=dataset.class_names, shape=dataset.shape, mean=dataset.mean, std=dataset.std)
    per_class = len(data.public_indices) // len(covered) if covered else 0
    public = experiment.public.model_copy(update={"classes": covered, "per_class": per_class})
    return experiment.model_copy(update={"input": seen, "public": public})


def build_server(federation: Federation) -> Server:
    data = federation.data
    public = None
    if len(data.public_indices):
        images, labels = torch.from_numpy(data.public_images), torch.from_numpy(data.public_labels)
        public = Samples(images, labels, torch.arange(len(labels)))
    method = find_method(federation.experiment.method)
    parts = method.shared(federation.experiment)
    return method.server(federation.experiment, federation.model, public, parts)


def build_host(federation: Federation, checkpoint: Path, records: dict[int, dict[str, Any]]) -> ClientHost:
    """A place for clients, whose private states lie in `checkpoint`."""
    experiment, data = federation.experiment, federation.data
    images, labels = torch.from_numpy(data.dataset.train_images), torch.from_numpy(data.dataset.train_labels)
    test_images, test_labels = torch.from_numpy(data.test_images), torch.from_numpy(data.test_labels)
    method = find_method(experiment.method)
    shelf = DiskShelf(checkpoint / "shelf")

    def seat(number: int) -> Seat:
        own = np.searchsorted(data.test_indices, data.own_test_indices[number])
        return Seat(
            number=number,
            experiment=experiment,
            samples=Samples(images, labels, torch.from_numpy(data.client_indices[number])),
            test=TestSet(test_images, test_labels, torch.from_numpy(own)),
            model=federation.model,
            parts=method.shared(experiment),
            shelf=shelf,
        )

    store = ClientStore(checkpoint / "clients", federation.initial_state, records)
    return ClientHost(method.client, seat, store)


def worker_specification(
    experiment: Experiment, data_dir: Path | None, checkpoint: Path, records: dict[int, dict[str, Any]]
) -> bytes:
    """All that a worker process needs to build its host."""
    return json.dumps(
        {
            "experiment": experiment.plain(),
            "data": None if data_dir is None else str(data_dir),
            "checkpoint": str(checkpoint.absolute()),
            "records": records,
        }
    ).encode()


def build_worker_host(specification: bytes) -> ClientHost:
    torch.set_num_threads(1)
    plain = json.loads(specification)
    data_dir = None if plain["data"] is None else Path(plain["data"])
    federation = load_federation(Experiment.parse(plain["experiment"]), data_dir)
    records = {int(client): record for client, record in plain["records"].items()}
    return build_host(federation, Path(plain["checkpoint"]), records)
