"""What the tests of deployments share, whatever the transport: data for three nodes, the same run in this process."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from refprotofl.data import load_federated
from refprotofl.data.client_files import export_federation
from refprotofl.deploy import node as node_side
from refprotofl.deploy.admission import Admissions, Admitted, fingerprint
from refprotofl.deploy.registry import Place
from refprotofl.deploy.run import deploy
from refprotofl.deploy.run_config import KEYS, read_run_config
from refprotofl.deploy.status import StatusCallback
from refprotofl.deploy.transport import Envelope, Sending, Transport
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import load_experiment
from refprotofl.federation import RunResult, run
from refprotofl.records.events import read_events

CLIENTS = 3
FIRST = 100  # the number of node-0 on a grid
FEDERATION: dict[str, Any] = {"clients": CLIENTS, "min-size": 10, "public": {"per-class": 5}}

Configs = Callable[..., dict[str, Any]]
# What becomes of a message to a node: "", "lost", "gone", "deaf", "slow", "twice" or "unknown" (to the transport).
Fate = Callable[[int, Sending], str]
# What a node says instead, by its number, the request and its answer.
Alter = Callable[[int, Envelope, Envelope], Envelope]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a federation of three, whose public images were held out of the clients' data."""
    folder = tmp_path_factory.mktemp("exported") / "data"
    export_federation(load_federated(Experiment(**FEDERATION)), folder)
    return folder


@pytest.fixture(scope="session")
def apart(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a federation of three that has a public set and a test set of its own."""
    folder = tmp_path_factory.mktemp("apart") / "data"
    sets = {name: {"dataset": str(exported / f"{name}.npz")} for name in ("public", "test")}
    export_federation(load_federated(Experiment(**{**FEDERATION, **sets})), folder)
    return folder


@pytest.fixture(scope="session")
def settings(exported: Path) -> Configs:
    """The keys of an experiment that can be simulated and deployed alike."""

    def build(**changed: Any) -> dict[str, Any]:
        return {
            "preset": "quick",
            "clients": CLIENTS,
            "rounds": 3,
            "evaluate.every": 1,
            "train.local-epochs": 1,
            "public.dataset": str(exported / "public.npz"),
            "test.dataset": str(exported / "test.npz"),
            **{name.replace("__", ".").replace("_", "-"): value for name, value in changed.items()},
        }

    return build


@pytest.fixture(scope="session")
def undisturbed(settings: Configs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same run in this process."""
    config = settings()
    keys = [f"{name}={value}" for name, value in config.items() if name != "preset"]
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    return run(load_experiment(preset=config["preset"], settings=keys), out=folder).folder


def key_of(client: int) -> bytes:
    """Return the public key that a grid's node has by default."""
    return f"key of node-{client}".encode()


def mark_of(client: int) -> str:
    return fingerprint(key_of(client))


def admit_three() -> Admissions:
    return Admissions({f"node-{one}": Admitted(mark_of(one), one) for one in range(CLIENTS)}, [])


def restart_nodes() -> None:
    """Lose what a node knows beyond its disk."""
    node_side._host.cache_clear()


@dataclass
class Grid:
    """A transport and its nodes in this process. `nodes`: the settings of each node by its number.

    `names`: under which a node's key is admitted; node-0 is number 100 unless it says otherwise. A node has the key of
    its name unless it is in `keys`. `asked`: number and action of every message; `valid`: the seconds that it may wait.
    """

    nodes: dict[int, dict[str, Any]]
    names: dict[int, str] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)
    fate: Fate = lambda number, sending: ""
    alter: Alter = lambda number, request, answer: answer
    asked: list[tuple[int, str]] = field(default_factory=list)
    valid: list[float] = field(default_factory=list)
    admissions: Admissions = field(default_factory=admit_three)

    def connect(self) -> Transport:
        raise NotImplementedError


def node(data: Path, folder: Path, number: int, **more: Any) -> dict[str, Any]:
    store = str(folder / f"store-{number}")
    return {"data-path": str(data / f"client-{number}.npz"), "store": store, "name": f"node-{number}", **more}


def run_config(config: dict[str, Any]) -> dict[str, str]:
    """Return the run config for an experiment's keys; an empty text leaves a key as it is."""
    given = {name: str(value) for name, value in config.items() if value != ""}
    settings = [f"{name}={value}" for name, value in given.items() if name not in KEYS]
    return {name: given[name] for name in KEYS if name in given} | ({"set": shlex.join(settings)} if settings else {})


def deployed(
    grid: Grid,
    config: dict[str, Any],
    out: Path,
    progress: StatusCallback | None = None,
    place: Place | None = None,
    final: Path | None = None,
) -> RunResult:
    """Run over a grid whose nodes have the places that its admissions give them."""
    restart_nodes()
    settings = read_run_config(run_config(config | {"out": str(out)}))
    by_key: Place = lambda node, name: grid.admissions.client_of(node.name, node.identity)  # noqa: E731
    return deploy(grid.connect(), settings, place or by_key, progress or StatusCallback(), final)


def simulated(config: dict[str, Any], out: Path) -> RunResult:
    return run(read_run_config(run_config(config)).experiment, out=out)


def failures(folder: Path) -> list[tuple[int, int, str]]:
    found = [event for event in read_events(folder) if event["event"] == "client-failed"]
    return [(event["round"], event["client"], event["code"]) for event in found]


def participants(folder: Path) -> list[list[int]]:
    return [event["participants"] for event in read_events(folder) if event["event"] == "round"]


def kind(sending: Sending) -> tuple[str, int, str]:
    """Return what a message asks for: the action, the round and the verb."""
    header = sending.envelope.header
    return sending.action, int(header.get("round", 0)), str(header.get("verb", ""))


class Once:
    """The first message of this kind to a node has this fate; `then` is done before it."""

    def __init__(self, number: int, kind: tuple[str, int, str], fate: str, then: Callable[[], None] | None = None):
        self.number, self.kind, self.fate, self.then, self.times = number, kind, fate, then, 0

    def __call__(self, number: int, sending: Sending) -> str:
        if (number, kind(sending)) != (self.number, self.kind):
            return ""
        self.times += 1
        if self.times > 1:
            return ""
        if self.then is not None:
            self.then()
        return self.fate


class Stop(StatusCallback):
    """Kills the server after a round."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
        if event["round"] == self.after:
            raise KeyboardInterrupt
