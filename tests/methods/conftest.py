"""A tiny federation on digits, run for real in this process, and a tap on everything that crosses in it."""

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tests.altering import Altered
from tests.tiny import tiny_keys

from refprotofl.core.state import State
from refprotofl.engines.engine import Request, Result
from refprotofl.engines.local.engine import LocalEngine
from refprotofl.engines.local.host import InProcess
from refprotofl.engines.local.store import ClientStore, DiskBlobStore, read_state
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, RunResult, run
from refprotofl.federation.local_run import OpenEngine, Site, open_engine
from refprotofl.federation.simulation import client_side
from refprotofl.methods import METHODS
from refprotofl.methods.base.schema import Scope, ValidatedMessage
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.methods.builtin.refprotofl.server import RefProtoServer
from refprotofl.methods.catalogue import options_of
from refprotofl.models import SplitModel
from refprotofl.models.inputs.image import pixels
from refprotofl.records.checkpoint import Checkpoint
from refprotofl.records.folder import read_events, read_experiment
from refprotofl.wire import decode

# The first broadcast is sent in full, so that tests see every vector; test_first_weights has the default.
TINY = tiny_keys(rounds=3, evaluate={"every": 3, "test-limit": 20}, first_weights="sent")


class Crossing(NamedTuple):
    direction: str
    phase: str
    client: int
    round: int
    data: bytes

    @property
    def message(self) -> ValidatedMessage:
        return ValidatedMessage(decode(self.data))


class Tap(Callback):
    """Keeps every message of a run."""

    def __init__(self) -> None:
        self.crossings: list[Crossing] = []

    def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
        self.crossings.append(Crossing(direction, phase, client, round, data))

    def select(self, direction: str, *phases: str) -> list[Crossing]:
        return [one for one in self.crossings if one.direction == direction and (not phases or one.phase in phases)]


@dataclass
class Simulation:
    experiment: Experiment
    folder: Path
    tap: Tap
    finished: RunResult | None = field(default=None)

    @property
    def communication(self) -> Any:
        assert self.finished is not None
        return self.finished.summary["communication"]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in read_events(self.folder) if event["event"] == name]

    def log(self, client: int) -> str:
        """Return a client's log of its failures."""
        path = self.folder / "logs" / f"client-{client}.log"
        return path.read_text() if path.exists() else ""

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.folder / "checkpoint", [""] * self.experiment.clients)

    def server_state(self) -> State:
        state = self.checkpoint().server_state()
        assert state is not None
        return state

    def client_state(self, client: int) -> State:
        checkpoint = self.checkpoint()
        return read_state(checkpoint.folder, checkpoint.records[client])

    @property
    def resolved(self) -> Experiment:
        """The experiment with what the data decided filled in."""
        return read_experiment(self.folder)

    def adapter(self) -> torch.Tensor:
        adapter = self.server_state()["adapter"]
        assert isinstance(adapter, torch.Tensor)
        return adapter

    def up(self, client: int, round: int) -> int:
        """Bytes that a client sent in a round, one-off traffic apart."""
        sent = self.tap.select("up", "prototypes", "train")
        return sum(len(one.data) for one in sent if one.client == client and one.round == round)


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for key, value in over.items():
        below = both.get(key, {})
        both[key] = merged(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return both


Simulate = Callable[..., Simulation]


def small_scope(over: dict[str, Any] | None = None, *, classes: int = 3, width: int = 2) -> Scope:
    """Make the scope of a method's messages, with few classes and a narrow embedding, without any data."""
    known = {"class-names": [str(one) for one in range(classes)], "shape": [1, 2, 2], "mean": [0.5], "std": [0.5]}
    experiment = Experiment.parse(merged({"clients": 3, "input": known, "model": {"embedding": width}}, over or {}))
    model = SplitModel(torch.nn.Flatten(), 4, width, classes, pixels([0.5], [0.5]))
    return Scope(experiment, model, METHODS[experiment.method].shared(experiment), options_of(experiment))


@pytest.fixture(scope="session")
def scope() -> Callable[..., Scope]:
    return small_scope


def build(over: dict[str, Any] | None = None, **switches: Any) -> Experiment:
    """The tiny experiment with other values; those of [refprotofl] as keywords with underscores."""
    table = {name.replace("_", "-"): value for name, value in switches.items()}
    return Experiment.parse(merged(merged(TINY, over or {}), {"refprotofl": table}))


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Experiment]:
    return build


@pytest.fixture(scope="session")
def simulate(tmp_path_factory: pytest.TempPathFactory, patient: OpenEngine) -> Simulate:
    """Runs the tiny experiment with the given changes, in this process unless `workers` or an engine are asked for.

    What went on can be looked at although the run failed: through `simulate.last`.
    """

    def simulate(
        over: dict[str, Any] | None = None,
        *,
        workers: int = 1,
        tap: Tap | None = None,
        engine: OpenEngine = patient,
        **switches: Any,
    ) -> Simulation:
        simulation = Simulation(build(over, **switches), tmp_path_factory.mktemp("run"), tap or Tap())
        simulate.last = simulation  # type: ignore[attr-defined]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: None)  # half of a tiny run's time, and no power fails here
            simulation.finished = run(
                simulation.experiment,
                out=simulation.folder,
                workers=workers,
                callback=simulation.tap,
                engine=engine,
            )
        return simulation

    return simulate


@pytest.fixture(scope="session")
def simulated(simulate: Simulate) -> Simulate:
    """The same, each experiment once for all tests; not for a test that breaks something on purpose."""
    done: dict[str, Simulation] = {}

    def simulated(over: dict[str, Any] | None = None, **switches: Any) -> Simulation:
        key = build(over, **switches).hash
        if key not in done:
            done[key] = simulate(over, **switches)
        return done[key]

    return simulated


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts another client, or server, into the method's place."""

    def replace(client: type[RefProtoClient] = RefProtoClient, server: type[RefProtoServer] = RefProtoServer) -> None:
        declared = type(METHODS["refprotofl"])
        monkeypatch.setattr(declared, "client", client)
        monkeypatch.setattr(declared, "server", server)

    return replace


@pytest.fixture(scope="session")
def stored_by() -> Callable[..., OpenEngine]:
    """An engine in this process whose clients' states, and maybe messages, are kept by a class of the test's own."""

    def opener(store: type[ClientStore], blobs: type[DiskBlobStore] = DiskBlobStore) -> OpenEngine:
        def open_it(site: Site) -> LocalEngine:
            host = client_side(site.federation, site.folder, store, blobs)
            return LocalEngine(lambda: InProcess(host), site.folder, site.records)

        return open_it

    return opener


@pytest.fixture(scope="session")
def garbling() -> Callable[..., OpenEngine]:
    """An engine that garbles one client's answer in one round, behind the client's own encoder."""

    def opener(client: int, round: int, verb: str, garble: Callable[[bytes], bytes]) -> OpenEngine:
        def alter(request: Request, result: Result) -> Result:
            chosen = (request.client, request.round, request.verb) == (client, round, verb)
            return dataclasses.replace(result, payload=garble(result.payload)) if chosen else result

        return lambda site: Altered(open_engine(site), alter)

    return opener
