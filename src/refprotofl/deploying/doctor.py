"""`deploy doctor`: whether a node can take part, before it joins; each finding says what to do."""

import datetime
import os
import re
import shutil
import socket
import ssl
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from refprotofl.basics.units import counted, size
from refprotofl.data.array_files import machine_memory
from refprotofl.data.labelled import Labelled, load_labelled
from refprotofl.data.reading import Reading
from refprotofl.data.sizing import Sizing
from refprotofl.engines.flower.node_config import NodeConfig
from refprotofl.errors import InputError, RefProtoFLError
from refprotofl.experiment import Experiment

ROOM = 1_000_000_000  # bytes of disk and memory that a node should have free


@dataclass(frozen=True)
class Finding:
    """`fine` is None where it could not be looked at."""

    subject: str
    fine: bool | None
    words: str


def examine(kit: Path, experiment: Experiment | None) -> Iterator[Finding]:
    """All that can be checked from here; `experiment` makes the data and the time of a step known, too."""
    yield _versions()
    try:
        config = read_config(kit)
    except RefProtoFLError as problem:
        yield Finding("config", False, str(problem))
        return
    address = _address(kit)
    yield _reach(kit, *address) if address else Finding("server", None, "start.sh names no --superlink to reach.")
    yield _disk(config)
    yield _memory()
    try:
        found = _load(config, experiment)
    except RefProtoFLError as problem:
        yield Finding("data", False, str(problem))
        return
    yield _data(found, experiment)
    if experiment is not None:
        yield _step(found, experiment)


def read_config(kit: Path) -> NodeConfig:
    try:
        told = tomllib.loads((kit / "node.toml").read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{kit} has no node.toml: give the folder of a node's kit.") from None
    except tomllib.TOMLDecodeError as problem:
        raise InputError(f"{kit / 'node.toml'} is not valid TOML: {problem}.") from None
    return NodeConfig.read(told, kit.absolute())


def _versions() -> Finding:
    try:
        installed = {name: version(name) for name in ("refprotofl", "torch", "flwr")}
    except PackageNotFoundError as missing:
        return Finding("versions", False, f"{missing.name} is not installed: pip install 'refprotofl[flower]'.")
    told = ", ".join(f"{name} {number}" for name, number in installed.items())
    fits = installed["flwr"].split(".")[:2] == ["1", "41"]
    advice = "" if fits else "; flwr must be 1.41: pip install 'flwr>=1.41,<1.42'"
    return Finding("versions", fits, f"Python {sys.version.split()[0]}, {told}{advice}.")


def _address(kit: Path) -> tuple[str, int] | None:
    try:
        named = re.search(r"--superlink (\S+):(\d+)", (kit / "start.sh").read_text(encoding="utf-8"))
    except OSError:
        return None
    return (named[1], int(named[2])) if named else None


def _reach(kit: Path, host: str, port: int) -> Finding:
    """The server answers, with a certificate of the kit's authority that is valid now."""
    try:
        with socket.create_connection((host, port), timeout=10) as plain:
            if not (kit / "ca.crt").exists():
                return Finding("server", True, f"{host}:{port} answers, without TLS: anyone on the way reads along.")
            context = ssl.create_default_context(cafile=str(kit / "ca.crt"))
            with context.wrap_socket(plain, server_hostname=host) as secure:
                ends = ssl.cert_time_to_seconds(str((secure.getpeercert() or {}).get("notAfter")))
    except ssl.SSLCertVerificationError as problem:
        clock = f"{datetime.datetime.now():%Y-%m-%d %H:%M}"
        return Finding(
            "server",
            False,
            f"{host}:{port} has no certificate that ca.crt vouches for ({problem.verify_message}). Is this the kit of "
            f"that server, and is the clock right? It says {clock}.",
        )
    except (OSError, ValueError) as problem:
        return Finding("server", False, f"{host}:{port} cannot be reached ({problem}): is the server started?")
    days = round((ends - time.time()) / 86_400)
    return Finding("server", True, f"{host}:{port} answers; its certificate is valid for {days} more days.")


def _disk(config: NodeConfig) -> Finding:
    there = next(path for path in (config.folder, *config.folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    fine = free > ROOM and os.access(there, os.W_OK)
    advice = "" if fine else f"; make room, or name another store (it needs {size(ROOM)} and must be writable)"
    return Finding("disk", fine, f"{size(free)} free for the store {config.folder}{advice}.")


def _memory() -> Finding:
    total = machine_memory()
    if total is None:
        return Finding("memory", None, "this system does not tell.")
    fine = total >= ROOM
    return Finding("memory", fine, f"{size(total)} in all{'' if fine else f'; {size(ROOM)} is the least that works'}.")


def _load(config: NodeConfig, experiment: Experiment | None) -> Labelled:
    sizing = Sizing(experiment.resize, experiment.crop) if experiment is not None else Sizing()
    return load_labelled(config.data_path, "data-path", None, Reading(sizing))


def _data(found: Labelled, experiment: Experiment | None) -> Finding:
    channels, height, width = found.shape
    occurring = [found.class_names[label] for label in np.unique(found.labels)]
    shape = f"{width} x {height} with {counted(channels, 'channel')}"
    told = f"{counted(len(found.labels), 'image')} of {shape}, classes {', '.join(occurring)}"
    if experiment is None or experiment.input is None:
        return Finding("data", True, f"{told}. Give the experiment (RUN/experiment.json) to check them against it.")
    unknown = [name for name in occurring if name not in experiment.input.class_names]
    if unknown or found.shape != tuple(experiment.input.shape):
        wanted = f"{experiment.input.shape}, classes {', '.join(experiment.input.class_names)}"
        return Finding("data", False, f"{told}; the experiment wants {wanted}.")
    return Finding("data", True, f"{told}.")


def _step(found: Labelled, experiment: Experiment) -> Finding:
    """One step of the client's training, timed after one that warms up."""
    import torch

    from refprotofl.methods.core.samples import Samples
    from refprotofl.methods.core.training import train
    from refprotofl.sides.models import model_of

    torch.set_num_threads(1)
    model, batch = model_of(experiment, 0), min(experiment.train.batch_size, len(found.labels))
    labels = torch.from_numpy(found.labels[:batch]) % experiment.known_input.num_classes
    samples = Samples(torch.from_numpy(found.images[:batch]), labels, torch.arange(batch))
    seconds = 0.0
    for _ in range(2):
        begin = time.perf_counter()
        train(model, samples, experiment.train.model_copy(update={"local_epochs": 1}), np.random.default_rng(0))
        seconds = time.perf_counter() - begin
    steps = experiment.train.local_epochs * -(-len(found.labels) // experiment.train.batch_size)
    told = f"a step takes {seconds:.2f} s, the training of a round about {steps * seconds:.0f} s."
    return Finding("training", True, told)
