"""A run over nodes that keep their data: the server's part."""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from refprotofl.core import devices, numerics
from refprotofl.core.errors import InputError
from refprotofl.core.process import keep_freed_memory, one_compute_thread
from refprotofl.data.draws import covered_classes, draw_from_own
from refprotofl.data.federated import limited
from refprotofl.data.server_data import ServerData, load_server_data, overlaps
from refprotofl.deploy.engine import DEADLINE, DeploymentEngine
from refprotofl.deploy.fleet import Fleet
from refprotofl.deploy.registry import NodeRegistry, Place
from refprotofl.deploy.status import Progress
from refprotofl.deploy.transport import Transport
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import Input
from refprotofl.federation.loop import Loop
from refprotofl.federation.models import prepare_models
from refprotofl.federation.provenance import origin_of
from refprotofl.federation.resolution import fill_in, prepare, resolve_apart
from refprotofl.federation.server_side import ServerSide, build_server_side
from refprotofl.federation.session import RunResult, enter, restore, stand
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


def deploy(transport: Transport, settings: Settings, place: Place, progress: Progress) -> RunResult:
    """Run an experiment over nodes; a run that is in the folder already is resumed after its last committed round."""
    started, out = time.perf_counter(), settings.out
    numerics.apply(settings.experiment.numerics)
    experiment = prepare(settings.experiment)
    refuse_undeployable(experiment)
    folder = RunFolder(out)
    keep_freed_memory()
    with ExitStack() as cleanup, one_compute_thread():
        cleanup.callback(progress.on_close)
        device = devices.choose(experiment.device)
        cleanup.callback(devices.make_repeatable(device))
        cleanup.callback(folder.close)
        finished = enter(folder, experiment, True, settings.data, None, resolve_apart)
        if finished is not None:
            return finished
        apart = load_server_data(experiment, settings.data, seen_from(out))
        for note in overlaps(apart):
            progress.on_note(note)
        experiment, side = server_side(experiment, apart, device)
        planned = folder.take(experiment)
        stand(folder, experiment, None, progress)
        checkpoint = Checkpoint(folder.checkpoint, side.initial_digests, experiment.keep_checkpoints)
        restore(side, checkpoint)
        registry = NodeRegistry(out, experiment.clients, place)
        registry.keep()
        checkpoint.marks.setdefault("run", {"id": registry.run, "experiment": experiment.hash, "rounds": planned})
        plain = experiment.plain() | {"numerics": experiment.numerics}  # nodes compute as the server does
        fleet = Fleet(transport, registry, plain, shared_test(apart, experiment), progress)
        engine = DeploymentEngine(transport, fleet, progress, checkpoint.records, checkpoint.kept_records)
        cleanup.callback(engine.close)
        loop = Loop(side, engine, checkpoint, folder, progress, lambda *clients: steps(loop.server, *clients))
        origin = origin_of(experiment, settings.data, seen_from(out), experiment.numerics)
        loop.begin(origin, planned, experiment.clients, devices.describe(device, 1), {})
        fleet.gather(experiment.deadline or DEADLINE, experiment.min_replies)
        return RunResult(loop.run(started), out)


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


def server_side(experiment: Experiment, apart: ServerData, device: torch.device) -> tuple[Experiment, ServerSide]:
    """The experiment in full, by what the server has: a public set, a test set, or the keys of [input]."""
    seen = apart.input or experiment.input
    if seen is None:
        raise InputError(
            "Nobody tells what the nodes' images look like: set public.dataset or test.dataset, or the keys of [input] "
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
    side = build_server_side(
        resolved, prepare_models(resolved, device), public=public, test=tested_on(apart, resolved, device)
    )
    return resolved, side


def refuse_impossible(seen: Input) -> None:
    """What no image can look like: the keys of [input] may be anybody's typing."""
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
    """What one aggregated model is scored on; none without a test set."""
    if apart.test is None:
        empty = torch.zeros(0, *experiment.known_input.shape, dtype=torch.uint8)
        return empty, torch.zeros(0, dtype=torch.int64)
    labels, classes, limit = apart.test.labels, experiment.known_input.num_classes, experiment.evaluate.test_limit
    rows = limited(labels, classes, limit, experiment.seed, "test-limit")
    return torch.from_numpy(apart.test.images[rows]).to(device), torch.from_numpy(labels[rows])


def shared_test(apart: ServerData, experiment: Experiment) -> bytes:
    """The test set as every node is given it; nothing without one."""
    images, labels = tested_on(apart, experiment, devices.CPU)
    if not len(labels):
        return b""
    return encode({"images": images, "labels": class_ids(labels, experiment.known_input.num_classes)})


def steps(server: Server, clients: Sequence[int], closing: Sequence[int]) -> int | None:
    """Of the optimisers of these clients in a round, and of some after the last, by the samples that they told.

    Not all methods ask for them.
    """
    told = [int(server.samples[client]) for client in clients]
    if 0 in told:
        return None
    experiment = server.experiment
    method, batch = find_method(experiment.method), experiment.train.batch_size
    public = len(server.public) if server.public is not None and experiment.public.train_on else 0
    after = sum(method.finetune_steps(experiment, int(server.samples[client]) - public) for client in closing)
    return method.local_epochs(experiment) * sum(math.ceil(samples / batch) for samples in told) + after
