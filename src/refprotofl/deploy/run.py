"""A run over nodes that keep their data: the server's part."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from refprotofl.core import devices
from refprotofl.core.errors import InputError
from refprotofl.data.draws import covered_classes, draw_from_own
from refprotofl.data.federated import limited
from refprotofl.data.server_data import ServerData, load_server_data, overlaps
from refprotofl.deploy.engine import DEADLINE, DeploymentEngine
from refprotofl.deploy.fleet import Fleet
from refprotofl.deploy.registry import NodeRegistry, Place
from refprotofl.deploy.status import StatusCallback
from refprotofl.deploy.transport import Transport
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Input
from refprotofl.federation.loop import Setup
from refprotofl.federation.models import prepare_models
from refprotofl.federation.participation import count_steps
from refprotofl.federation.resolution import fill_in, resolve_apart
from refprotofl.federation.server_side import ServerSide, build_server_side
from refprotofl.federation.session import RunResult, run_session
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.schema import class_ids
from refprotofl.methods.base.server import Server
from refprotofl.methods.catalogue import find_method
from refprotofl.privacy.mechanisms import create_mechanism
from refprotofl.records.checkpoint import Checkpoint
from refprotofl.records.folder import RunFolder, seen_from
from refprotofl.wire import encode


@dataclass(frozen=True)
class Settings:
    experiment: Experiment
    out: Path
    data: Path | None = None


def deploy(transport: Transport, settings: Settings, place: Place, progress: StatusCallback) -> RunResult:
    """Run an experiment over nodes, or resume the run that is in the folder after its last committed round."""
    deployment = Deployment(transport, settings.out, settings.data, place, progress)
    return run_session(deployment, settings.experiment, RunFolder(settings.out), settings.data, progress)


@dataclass(frozen=True)
class Deployment:
    """A deployment, as a session runs it (`session.Runtime`)."""

    transport: Transport
    folder: Path
    data_dir: Path | None
    place: Place
    progress: StatusCallback
    resume_hint: str = DeploymentEngine.info.resume_hint

    def check(self, experiment: Experiment) -> None:
        refuse_undeployable(experiment)

    def resolve_alike(self, experiment: Experiment, stored: Experiment) -> Experiment:
        return resolve_apart(experiment, stored)

    def set_up(self, experiment: Experiment, device: torch.device, note: Callable[[str], None]) -> Setup:
        apart = load_server_data(experiment, self.data_dir, seen_from(self.folder))
        for sentence in overlaps(apart):
            note(sentence)
        side = server_side(experiment, apart, device)
        experiment = side.experiment
        registry = NodeRegistry(self.folder, experiment.clients, self.place)
        plain = experiment.plain() | {"numerics": experiment.numerics}  # nodes compute as the server does
        fleet = Fleet(self.transport, registry, plain, shared_test(apart, experiment), self.progress)

        def open_engine(checkpoint: Checkpoint) -> DeploymentEngine:
            engine = DeploymentEngine(self.transport, fleet, self.progress, checkpoint.records, checkpoint.kept_records)
            registry.keep()
            return engine

        return Setup(
            side=side,
            open_engine=open_engine,
            steps=steps,
            workers=experiment.clients,
            device=devices.describe(device, 1),
            run_id=registry.run,
            wait=lambda: fleet.gather(experiment.deadline or DEADLINE, experiment.min_replies),
        )


def refuse_undeployable(experiment: Experiment) -> None:
    reason = find_method(experiment.method).simulation_only
    if reason:
        raise InputError(f"method = {experiment.method!r} is for simulation only: {reason}.")
    if experiment.attack.kind != "none":
        raise InputError(f"attack.kind = {experiment.attack.kind!r} is for simulation only: leave attack out.")
    privacy = create_mechanism(experiment)
    if privacy.simulation_only:
        raise InputError(f"{privacy.setting} is for simulation only: {privacy.simulation_only}.")
    if experiment.validation:
        raise InputError(
            f"validation = {experiment.validation:g} is for simulation only: leave it out. What a node holds out "
            "of its images is up to its owner (hold-out in its config)."
        )
    if experiment.partition == "natural":
        raise InputError('partition = "natural" is for simulation only: set clients to the number of nodes instead.')


def server_side(experiment: Experiment, apart: ServerData, device: torch.device) -> ServerSide:
    """Return the server side; the experiment is resolved by a public set, a test set, or the keys of [input]."""
    seen = apart.input or experiment.input
    if seen is None:
        raise InputError(
            "The format of the nodes' images is unknown: set public.dataset or test.dataset, or the keys of [input] "
            "(class-names, shape, mean, std)."
        )
    refuse_impossible(seen)
    asked = experiment.public
    classes = covered_classes(seen.num_classes, asked.coverage, asked.classes, experiment.seed)
    public, covered = None, tuple[int, ...]()
    if apart.public is not None:
        labels = apart.public.labels
        rows, covered = draw_from_own(labels, seen.class_names, asked.per_class, classes, experiment.seed)
        if len(rows):
            images = torch.from_numpy(apart.public.images[rows])
            public = Samples(images, torch.from_numpy(labels[rows]), torch.arange(len(rows)))
    resolved = fill_in(experiment, seen, covered, len(public) // len(covered) if public is not None else 0)
    resolved = resolved.model_copy(update={"device": device.type})
    return build_server_side(
        resolved, prepare_models(resolved, device), public=public, test=tested_on(apart, resolved, device)
    )


def refuse_impossible(seen: Input) -> None:
    """Refuse keys of [input] that no image can have: they may be mistyped."""
    channels, problems = seen.shape[0], dict[str, str]()
    if min(seen.shape) < 1:
        problems["shape"] = "channels, height and width, each 1 or more"
    if len(seen.mean) != channels:
        problems["mean"] = f"a number for each of {channels} channels"
    if len(seen.std) != channels or min(seen.std) <= 0:
        problems["std"] = f"a number above 0 for each of {channels} channels"
    if not seen.class_names or len(set(seen.class_names)) != len(seen.class_names):
        problems["class-names"] = "a list of different names"
    for key, allowed in problems.items():
        given = list(getattr(seen, key.replace("-", "_")))
        raise InputError(f"input.{key} = {given}: it must be {allowed}.")


def tested_on(apart: ServerData, experiment: Experiment, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images and labels that one aggregated model is scored on; none without a test set."""
    if apart.test is None:
        empty = torch.zeros(0, *experiment.known_input.shape, dtype=torch.uint8)
        return empty, torch.zeros(0, dtype=torch.int64)
    labels, classes, limit = apart.test.labels, experiment.known_input.num_classes, experiment.evaluate.test_limit
    rows = limited(labels, classes, limit, experiment.seed, "test-limit")
    return torch.from_numpy(apart.test.images[rows]).to(device), torch.from_numpy(labels[rows])


def shared_test(apart: ServerData, experiment: Experiment) -> bytes:
    """Return the test set as every node gets it; empty without one."""
    images, labels = tested_on(apart, experiment, devices.CPU)
    if not len(labels):
        return b""
    return encode({"images": images, "labels": class_ids(labels, experiment.known_input.num_classes)})


def steps(server: Server, clients: Sequence[int], closing: Sequence[int]) -> int | None:
    """Return the optimiser steps of a round, by the numbers of samples that the clients joined with.

    None if a number is unknown: not all methods ask for it.
    """
    sizes = [int(server.samples[client]) for client in clients]
    if 0 in sizes:
        return None
    experiment = server.experiment
    public = len(server.public) if server.public is not None and experiment.public.train_on else 0
    return count_steps(experiment, sizes, [int(server.samples[client]) - public for client in closing])
