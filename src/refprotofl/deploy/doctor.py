"""Check whether a node can take part, before it joins; each finding says what to do."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from refprotofl.core import RefProtoFLError, counted, size
from refprotofl.data import AS_IT_COMES, LabelledSamples, load_labelled, reading_of
from refprotofl.data.array_files import machine_memory
from refprotofl.deploy.node_config import NodeConfig, read_node_config
from refprotofl.deploy.transports import FLOWER, TransportKind
from refprotofl.experiment import Experiment, Input
from refprotofl.inputs import find_kind

PATIENCE = 10.0  # seconds that a server has to answer


@dataclass(frozen=True)
class Finding:
    """A finding of `deploy doctor` about one subject. `fine` is None if it could not be checked."""

    subject: str
    fine: bool | None
    words: str


# Yields the findings about a node's server; of a kit, and its settings.
ReachServer = Callable[[Path, NodeConfig], "Iterator[Finding]"]

ROOM = 1_000_000_000  # bytes of disk and memory that a node should have free
FIRST = "correct the findings above first"
NEEDED = "give --experiment, an experiment.json or .toml from the operator"


def examine(kit: Path, experiment: Experiment | None, reach: ReachServer | None = None) -> Iterator[Finding]:
    """Yield all that can be checked from here; with `experiment` also its data and the time of a training step.

    `reach` takes the place of the transport's own check of the server.
    """
    try:
        config = read_node_config(kit)
        _ = config.address
    except RefProtoFLError as problem:
        yield _versions(FLOWER)
        yield Finding("settings", False, str(problem))
        return
    yield _versions(config.transport_kind)
    yield from (reach or config.transport_kind.reach)(kit, config)
    yield _disk(config)
    yield _memory()
    with chdir(kit):  # as start.sh does: the owner's own code is found from there
        yield from _work(config, experiment)


def _work(config: NodeConfig, experiment: Experiment | None) -> Iterator[Finding]:
    """Yield findings about data, run and training step; a check is skipped if one that it needs failed."""
    try:
        found = _load(config, experiment)
    except RefProtoFLError as problem:
        yield Finding("data", False, str(problem))
        return
    if experiment is not None and experiment.input is None:
        experiment = _assume_input(experiment, found)
    yield (data := _data(found, config, experiment))
    if experiment is None:
        yield Finding("training", None, f"not timed: {NEEDED}.")
        return
    yield (run := _run(config, experiment) if data.fine else Finding("run", None, f"not tried: {FIRST}."))
    yield _step(found, config, experiment) if run.fine else Finding("training", None, f"not timed: {FIRST}.")


def _assume_input(experiment: Experiment, found: LabelledSamples) -> Experiment:
    """Return an experiment that has not run yet as if all nodes had data like this one's."""
    seen = Input(
        class_names=found.class_names,
        shape=found.shape,
        mean=found.mean,
        std=found.std,
        kind=found.kind,
        vocabulary=found.vocabulary,
        feature_names=found.feature_names,
    )
    return experiment.model_copy(update={"input": seen})


def _versions(transport: TransportKind) -> Finding:
    needed, release = transport.distribution, transport.release
    try:
        installed = {name: version(name) for name in ("refprotofl", "torch", needed)}
    except PackageNotFoundError as missing:
        extra = f"'refprotofl[{transport.name}]'"
        return Finding("versions", False, f"{missing.name} is not installed: pip install {extra}.")
    packages = ", ".join(f"{name} {number}" for name, number in installed.items())
    fits = not release or installed[needed].split(".")[:2] == release.split(".")
    advice = "" if fits else f"; {needed} must be {release}: pip install '{needed}=={release}.*'"
    return Finding("versions", fits, f"Python {sys.version.split()[0]}, {packages}{advice}.")


def _disk(config: NodeConfig) -> Finding:
    there = next(path for path in (config.folder, *config.folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    fine = free > ROOM and os.access(there, os.W_OK)
    advice = "" if fine else f"; free space, or name another store (it needs {size(ROOM)} and must be writable)"
    return Finding("disk", fine, f"{size(free)} free for the store {config.folder}{advice}.")


def _memory() -> Finding:
    total = machine_memory()
    if total is None:
        return Finding("memory", None, "unknown on this system.")
    fine = total >= ROOM
    return Finding("memory", fine, f"{size(total)} in total{'' if fine else f'; {size(ROOM)} is the minimum'}.")


def _load(config: NodeConfig, experiment: Experiment | None) -> LabelledSamples:
    reading = AS_IT_COMES if experiment is None else replace(reading_of(experiment), natural=False)
    return load_labelled(config.data_path, "data-path", None, reading)


def _data(found: LabelledSamples, config: NodeConfig, experiment: Experiment | None) -> Finding:
    from refprotofl.deploy.node_data import inputs_of

    kind = find_kind(found.kind)
    occurring = [found.class_names[label] for label in np.unique(found.labels)]
    summary = f"{counted(len(found.labels), kind.noun)} of {kind.describe(found.shape)}, classes {', '.join(occurring)}"
    if experiment is None:
        return Finding("data", True, f"{summary}. To check them against the experiment, {NEEDED}.")
    try:
        inputs_of(found, config, experiment, client_of(config))
    except RefProtoFLError as problem:
        return Finding("data", False, f"{summary}. {problem}")
    return Finding("data", True, f"{summary}.")


def _run(config: NodeConfig, experiment: Experiment) -> Finding:
    """Build the node's side as for a run; it is refused for the same reasons: code, budget, device."""
    try:
        from refprotofl.deploy.node import build_side

        build_side(config, client_of(config), experiment, b"", config.folder)
    except Exception as problem:  # the owner's own code may do anything
        return Finding("run", False, _words(problem))
    return Finding("run", True, "code, data and budget are accepted.")


def _step(found: LabelledSamples, config: NodeConfig, experiment: Experiment) -> Finding:
    """Time one training step of the client after a warm-up, without further work of the method."""
    import torch

    from refprotofl.deploy.node_data import inputs_of
    from refprotofl.federation import model_of
    from refprotofl.methods import Samples, find_method, train

    client, table = client_of(config), experiment.train
    own = inputs_of(found, config, experiment, client).train
    batch = min(table.batch_size, len(own.labels))
    inputs, labels = torch.from_numpy(own.inputs[:batch]), torch.from_numpy(own.labels[:batch])
    seconds = 0.0
    try:
        model = model_of(experiment, client)
        for _ in range(2):
            begin = time.perf_counter()
            samples, once = Samples(inputs, labels, torch.arange(batch)), table.in_round(1, 1, epochs=1)
            train(model, samples, once, np.random.default_rng(0))
            seconds = time.perf_counter() - begin
    except Exception as problem:
        return Finding("training", False, _words(problem))
    steps = find_method(experiment.method).steps_of_round(experiment, len(own.labels))
    timing = f"a step takes {seconds:.2f} s, the {counted(steps, 'step')} of a round about {steps * seconds:.0f} s"
    return Finding("training", True, f"{timing}, plus messages.")


def client_of(config: NodeConfig) -> int:
    """Return the client that the node probably is, by its name; only the operator knows."""
    digits = config.name[len(config.name.rstrip("0123456789")) :]
    return config.client if config.client is not None else int(digits or 0)


def _words(problem: Exception) -> str:
    return str(problem) if isinstance(problem, RefProtoFLError) else f"{type(problem).__name__}: {problem}."
