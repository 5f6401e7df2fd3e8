"""The models of an experiment, and the clients' initial states."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from refprotofl.core import CPU, InputError, State, digest_state, references
from refprotofl.experiment import Experiment
from refprotofl.methods import find_method
from refprotofl.models import SplitModel, build_model
from refprotofl.privacy import create_mechanism

CODE_OF_MODELS = ("method", "model.name")  # the keys whose code a model is built with


@dataclass(frozen=True)
class Models:
    """Models and initial states by the backbone's name, so that any number of clients shares them."""

    by_name: Mapping[str, SplitModel]  # to compute with, on the device
    initial: Mapping[str, State]  # of a client with that backbone
    shared: Tensor  # (P,), the initial weights of the shared parts, which are those of client 0
    memo: dict[str, Tensor] = field(default_factory=dict)  # of what both sides compute alike in one process


def prepare_models(experiment: Experiment, device: torch.device = CPU, clients: Iterable[int] | None = None) -> Models:
    """Return the models of these clients, or of all."""
    models = build_models(experiment, clients)
    initial = initial_states(experiment, models)
    first = models.get(experiment.backbones[0]) or model_of(experiment, 0)
    shared = first.read(find_method(experiment.method).shared(experiment))
    return Models({name: model.to(device) for name, model in models.items()}, initial, shared)


def model_of(experiment: Experiment, client: int) -> SplitModel:
    """Return the model of this client, with its initial weights."""
    return build_model(experiment, find_method(experiment.method).extra_outputs(experiment), client)


def build_models(experiment: Experiment, clients: Iterable[int] | None = None) -> dict[str, SplitModel]:
    """Return a model for each backbone's name; a shared feature layer must fit them all."""
    firsts: dict[str, int] = {}
    for client in range(experiment.clients) if clients is None else clients:
        firsts.setdefault(experiment.backbones[client], client)
    models = {name: model_of(experiment, client) for name, client in firsts.items()}
    privacy = create_mechanism(experiment)
    for name, model in models.items():
        privacy.check_model(name, model)
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


def known_digests(experiment: Experiment, recorded: Mapping[str, str] | None) -> list[str] | None:
    """Return the digest of each client's initial state, as recorded for its backbone; else of models of our own.

    None for a user's models: to build them would run the user's code.
    """
    if recorded is not None:
        return [recorded[name] for name in experiment.backbones] if {*experiment.backbones} <= recorded.keys() else None
    if any(key in CODE_OF_MODELS for key, _ in references(experiment.plain())):
        return None
    return initial_digests(experiment, initial_states(experiment, build_models(experiment)))


def initial_digests(experiment: Experiment, initial: Mapping[str, State]) -> list[str]:
    """Return the digest of each client's initial state."""
    digests = {name: digest_state(state) for name, state in initial.items()}
    return [digests[name] for name in experiment.backbones]
