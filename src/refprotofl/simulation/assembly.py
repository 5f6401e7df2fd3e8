"""Puts a simulated federation together: data, server, and the hosts where its clients live."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from refprotofl.basics.state import State, digest_state
from refprotofl.compute.devices import CPU, make_repeatable
from refprotofl.compute.process import keep_freed_memory
from refprotofl.data import FederatedData, federate, load_dataset
from refprotofl.engines.host import ClientHost
from refprotofl.errors import InputError
from refprotofl.evaluation.scoring import TestSet
from refprotofl.experiment import Experiment
from refprotofl.experiment.tables import Input
from refprotofl.methods.catalogue import find_method, options_of, with_options
from refprotofl.methods.core.client import Seat
from refprotofl.methods.core.messages import Scope
from refprotofl.methods.core.samples import Samples
from refprotofl.methods.core.server import Desk, Server
from refprotofl.models import SplitModel, build_model
from refprotofl.records.clients import ClientStore, DiskShelf


@dataclass(frozen=True)
class Federation:
    """One experiment with its data; `experiment` is resolved, so nothing in it depends on defaults."""

    experiment: Experiment
    data: FederatedData
    models: Mapping[str, SplitModel]  # by the backbone's name, on the device
    initial: Mapping[str, State]  # what a client with that backbone starts from
    device: torch.device = CPU

    @property
    def model(self) -> SplitModel:
        """The server's: that of client 0."""
        return self.models[self.experiment.backbones[0]]

    @cached_property
    def train_images(self) -> Tensor:
        """Of the whole set, (N, channels, H, W) uint8 on the device."""
        return torch.from_numpy(self.data.dataset.train_images).to(self.device)

    @cached_property
    def test_images(self) -> Tensor:
        """Those that are evaluated, (T, channels, H, W) uint8 on the device."""
        return torch.from_numpy(self.data.test_images).to(self.device)


def load_federation(experiment: Experiment, data_dir: Path | None, device: torch.device = CPU) -> Federation:
    experiment = with_options(experiment).model_copy(update={"device": device.type})
    check_backbones(experiment)
    check_compressor(experiment)
    dataset = load_dataset(experiment.dataset, data_dir, experiment.seed)
    data = federate(experiment, dataset)
    resolved = resolve(experiment, data)
    models = build_models(resolved)
    initial = initial_states(resolved, models)
    return Federation(resolved, data, {name: model.to(device) for name, model in models.items()}, initial, device)


def check_backbones(experiment: Experiment) -> None:
    """Whoever shares the backbone has one and the same."""
    names = dict.fromkeys(experiment.backbones)
    if len(names) > 1 and "backbone" in find_method(experiment.method).shared(experiment):
        full = ' with share = "full"' if experiment.share == "full" else ""
        raise InputError(
            f"method = {experiment.method!r}{full} shares the backbone, so model.name must be one for all clients, "
            f"not {', '.join(names)}."
        )


def check_compressor(experiment: Experiment) -> None:
    if experiment.compress.name != "none" and not find_method(experiment.method).server.sends_weights:
        raise InputError(
            f"compress.name = {experiment.compress.name!r} has nothing to shorten: "
            f"method = {experiment.method!r} sends no weights up; leave compress out."
        )


def model_of(experiment: Experiment, client: int) -> SplitModel:
    """The model that the experiment's method works with at this client, with its initial weights."""
    return build_model(experiment, find_method(experiment.method).extra_outputs(experiment), client)


def build_models(experiment: Experiment) -> dict[str, SplitModel]:
    """A model for each backbone's name; a shared feature layer must fit them all."""
    firsts = {name: experiment.backbones.index(name) for name in dict.fromkeys(experiment.backbones)}
    models = {name: model_of(experiment, client) for name, client in firsts.items()}
    widths = {name: model.feature.in_features for name, model in models.items()}
    if len(set(widths.values())) > 1 and "feature" in find_method(experiment.method).shared(experiment):
        listed = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise InputError(
            f"method = {experiment.method!r} shares the feature layer, so all backbones must have the same width; "
            f"on these images they have: {listed}."
        )
    return models


def initial_states(experiment: Experiment, models: Mapping[str, SplitModel]) -> dict[str, State]:
    shared = find_method(experiment.method).shared(experiment)
    return {name: dict(model.read_private(shared)) for name, model in models.items()}


def initial_digests(experiment: Experiment, initial: Mapping[str, State]) -> list[str]:
    """Each client's digest before it ever trained."""
    digests = {name: digest_state(state) for name, state in initial.items()}
    return [digests[name] for name in experiment.backbones]


def resolve(experiment: Experiment, data: FederatedData) -> Experiment:
    """The experiment with everything filled in that the data decide."""
    dataset, covered = data.dataset, data.public_classes
    seen = Input(class_names=dataset.class_names, shape=dataset.shape, mean=dataset.mean, std=dataset.std)
    per_class = len(data.public_indices) // len(covered) if covered else 0
    public = experiment.public.model_copy(update={"classes": covered, "per_class": per_class})
    return experiment.model_copy(update={"input": seen, "public": public})


def build_server(federation: Federation) -> Server:
    experiment, data = federation.experiment, federation.data
    method = find_method(experiment.method)
    return method.server(
        Desk(
            experiment=experiment,
            model=federation.model,
            parts=method.shared(experiment),
            public=public_samples(data),
            pooled=pooled_samples(federation) if method.pooled else None,
            options=options_of(experiment),
            feedback=method.feedback(experiment),
        )
    )


def public_samples(data: FederatedData) -> Samples | None:
    if not len(data.public_indices):
        return None
    images, labels = torch.from_numpy(data.public_images), torch.from_numpy(data.public_labels)
    return Samples(images, labels, torch.arange(len(labels)))


def pooled_samples(federation: Federation) -> Samples:
    """What all clients train on, in one place."""
    data = federation.data
    public = [data.public_indices] if federation.experiment.public.train_on else []
    rows = np.sort(np.concatenate([*data.client_indices, *public]))
    labels = torch.from_numpy(data.dataset.train_labels)
    return Samples(federation.train_images, labels, torch.from_numpy(rows))


def build_host(federation: Federation, checkpoint: Path) -> ClientHost:
    """A place for clients, whose private states lie in `checkpoint`."""
    experiment, data = federation.experiment, federation.data
    labels, test_labels = torch.from_numpy(data.dataset.train_labels), torch.from_numpy(data.test_labels)
    method, names = find_method(experiment.method), experiment.backbones
    parts, options, feedback = method.shared(experiment), options_of(experiment), method.feedback(experiment)
    messages = {
        name: method.server.exchanges(Scope(experiment, model, parts, options))
        for name, model in federation.models.items()
    }
    shelf, memo = DiskShelf(checkpoint / "shelf"), dict[str, Tensor]()

    def seat(number: int) -> Seat:
        own = np.searchsorted(data.test_indices, data.own_test_indices[number])
        return Seat(
            number=number,
            experiment=experiment,
            samples=Samples(federation.train_images, labels, torch.from_numpy(data.client_indices[number])),
            test=TestSet(federation.test_images, test_labels, torch.from_numpy(own)),
            model=federation.models[names[number]],
            parts=parts,
            shelf=shelf,
            memo=memo,
            options=options,
            feedback=feedback,
            messages=messages[names[number]],
        )

    store = ClientStore(checkpoint / "clients", [federation.initial[name] for name in names])
    return ClientHost(method.client, seat, store)


def worker_specification(
    experiment: Experiment, data_dir: Path | None, checkpoint: Path, device: torch.device = CPU
) -> bytes:
    """All that a worker process needs to build its host."""
    return json.dumps(
        {
            "experiment": experiment.plain(),
            "data": None if data_dir is None else str(data_dir),
            "checkpoint": str(checkpoint.absolute()),
            "device": str(device),
        }
    ).encode()


def build_worker_host(specification: bytes) -> ClientHost:
    torch.set_num_threads(1)
    keep_freed_memory()
    plain = json.loads(specification)
    data_dir, device = None if plain["data"] is None else Path(plain["data"]), torch.device(plain["device"])
    make_repeatable(device)
    federation = load_federation(Experiment.parse(plain["experiment"]), data_dir, device)
    return build_host(federation, Path(plain["checkpoint"]))
