"""Check whether a node can take part, before it joins; each finding says what to do."""

import datetime
import os
import shutil
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, closing
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from refprotofl.core import RefProtoFLError, counted, size
from refprotofl.data import AS_IT_COMES, LabelledSamples, load_labelled, reading_of
from refprotofl.data.array_files import machine_memory
from refprotofl.deploy.certificates import validity_problem
from refprotofl.deploy.kits import AUTHORITY, PUBLIC_KEY
from refprotofl.deploy.node_config import NodeConfig, read_node_config
from refprotofl.experiment import Experiment, Input
from refprotofl.inputs import find_kind

PATIENCE = 10.0  # seconds
AHEAD, BEHIND = 5, 305  # seconds by which Flower lets the time stamp of a node's signature be off


@dataclass(frozen=True)
class Finding:
    """A finding of `deploy doctor` about one subject. `fine` is None if it could not be checked."""

    subject: str
    fine: bool | None
    words: str


# Yields the findings about a node's server; of a kit, and its settings.
ReachServer = Callable[[Path, NodeConfig], "Iterator[Finding]"]
# Returns the headers that authenticate a node, made at the moment of a request.
Sign = Callable[[], Mapping[str, str]]


def reach(kit: Path, name: str, address: tuple[str, int], sign: Sign, admission_path: str) -> Iterator[Finding]:
    """Yield findings about the server, the admission and the clock; only the first if there is no server to ask.

    `admission_path`: where the server answers a signed HEAD request with 401 unless it admits the key.
    """
    authority = kit / AUTHORITY
    secure = authority.exists()
    if secure and (problem := validity_problem(authority)):
        yield Finding("server", False, problem)
        return
    host, port = address
    try:
        line = _connected(authority if secure else None, host, port)
    except ssl.SSLCertVerificationError as problem:
        yield Finding("server", False, _describe_untrusted(host, port, problem))
        return
    except (OSError, ValueError) as problem:
        yield Finding("server", False, f"{host}:{port} cannot be reached ({problem}). Is the server running?")
        return
    with closing(line):
        yield Finding("server", True, f"{host}:{port} answers{_trust(line)}.")
        yield _clock(line, secure)
    if secure:
        yield _admission(_line(authority, host, port), kit, name, sign, admission_path)


def _describe_untrusted(host: str, port: int, problem: ssl.SSLCertVerificationError) -> str:
    if "expired" in problem.verify_message:
        return f"The certificate of {host}:{port} has expired: the operator makes a new site and new kits."
    return (
        f"{host}:{port} has no certificate signed by ca.crt ({problem.verify_message}). Is this the kit of that "
        f"server, and is the clock right? It says {_now()}."
    )


def _admission(line: HTTPConnection, kit: Path, name: str, sign: Sign, path: str) -> Finding:
    try:
        with closing(line):
            line.request("HEAD", path, headers=dict(sign()))
            status = line.getresponse().status
    except (OSError, HTTPException) as problem:
        return Finding("admission", None, f"could not be checked ({type(problem).__name__}): try again.")
    if status == 401:
        return Finding(
            "admission",
            False,
            f"this node's key is not admitted: send {kit.absolute() / PUBLIC_KEY} to the operator, who runs refprotofl "
            f"deploy admit SITE {name or 'NAME'} {PUBLIC_KEY}.",
        )
    if status != 204:
        return Finding("admission", None, f"the server answers with HTTP {status}: is it a refprotofl site?")
    return Finding("admission", True, "this node's key is admitted.")


def _line(authority: Path | None, host: str, port: int) -> HTTPConnection:
    if authority is None:
        return HTTPConnection(host, port, timeout=PATIENCE)
    context = ssl.create_default_context(cafile=str(authority))
    return HTTPSConnection(host, port, timeout=PATIENCE, context=context)


def _connected(authority: Path | None, host: str, port: int) -> HTTPConnection:
    line = _line(authority, host, port)
    try:
        line.connect()
    except BaseException:
        line.close()
        raise
    return line


def _trust(line: HTTPConnection) -> str:
    if not isinstance(line.sock, ssl.SSLSocket):
        return ", without TLS: the traffic can be read by anyone on the way"
    ends = ssl.cert_time_to_seconds(str((line.sock.getpeercert() or {}).get("notAfter")))
    return f"; its certificate is valid for {round((ends - time.time()) / 86_400)} more days"


def _clock(line: HTTPConnection, signs: bool) -> Finding:
    """Compare the clock with the date of the server's HTTP answers; it matters if nodes sign requests."""
    try:
        asked = time.time()
        line.request("HEAD", "/")
        date = line.getresponse().getheader("Date")
        theirs = parsedate_to_datetime(date or "").timestamp() + 0.5  # the date has whole seconds
    except (OSError, HTTPException, ValueError):
        words = f"the server sends no date, so this clock could not be compared. It says {_now()}"
        return Finding("clock", None, f"{words}; Flower allows less than {AHEAD} s ahead and {BEHIND} s behind.")
    ahead = (asked + time.time()) / 2 - theirs
    fine = not signs or -BEHIND < ahead < AHEAD
    words = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    advice = (
        "" if fine else f"; Flower allows less than {AHEAD} s ahead and {BEHIND} s behind: set the clock, best by NTP"
    )
    return Finding("clock", fine, f"{words}{advice}.")


def _now() -> str:
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"


ROOM = 1_000_000_000  # bytes of disk and memory that a node should have free
FIRST = "correct the findings above first"
NEEDED = "give --experiment, an experiment.json or .toml from the operator"


def examine(kit: Path, experiment: Experiment | None, reach_server: ReachServer) -> Iterator[Finding]:
    """Yield all that can be checked from here; with `experiment` also its data and the time of a training step."""
    try:
        config = read_node_config(kit)
        _ = config.address
    except RefProtoFLError as problem:
        yield _versions("flower")
        yield Finding("settings", False, str(problem))
        return
    yield _versions(config.transport)
    yield from reach_server(kit, config)
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


def _versions(transport: str) -> Finding:
    carrier = {"flower": "flwr", "mqtt": "paho-mqtt"}[transport]
    try:
        installed = {name: version(name) for name in ("refprotofl", "torch", carrier)}
    except PackageNotFoundError as missing:
        return Finding("versions", False, f"{missing.name} is not installed: pip install 'refprotofl[{transport}]'.")
    packages = ", ".join(f"{name} {number}" for name, number in installed.items())
    fits = transport == "mqtt" or installed["flwr"].split(".")[:2] == ["1", "41"]
    advice = "" if fits else "; flwr must be 1.41: pip install 'flwr>=1.41,<1.42'"
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
