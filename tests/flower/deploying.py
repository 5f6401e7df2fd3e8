"""Deployments in memory, and what can happen to them."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Message
from tests.flower.inmemory import MemoryGrid, restart_nodes

from refprotofl.deploy.registry import Place
from refprotofl.deploy.run import deploy
from refprotofl.deploy.run_config import KEYS, read_run_config
from refprotofl.deploy.status import StatusCallback
from refprotofl.engines.flower.grid_transport import FlowerTransport
from refprotofl.engines.flower.records import unwrap
from refprotofl.federation.session import RunResult, run
from refprotofl.records.events import read_events

Configs = Callable[..., dict[str, Any]]


def node(data: Path, folder: Path, number: int, **more: Any) -> dict[str, Any]:
    store = str(folder / f"store-{number}")
    return {"data-path": str(data / f"client-{number}.npz"), "store": store, "name": f"node-{number}", **more}


def run_config(config: dict[str, Any]) -> dict[str, str]:
    """Return Flower's run config for an experiment's keys; an empty text leaves a key as it is."""
    given = {name: str(value) for name, value in config.items() if value != ""}
    settings = [f"{name}={value}" for name, value in given.items() if name not in KEYS]
    return {name: given[name] for name in KEYS if name in given} | ({"set": shlex.join(settings)} if settings else {})


def deployed(
    grid: MemoryGrid,
    config: dict[str, Any],
    out: Path,
    progress: StatusCallback | None = None,
    place: Place | None = None,
) -> RunResult:
    """Run over a grid whose nodes have the places that its admissions give them."""
    restart_nodes()
    transport = FlowerTransport(grid, lambda seconds: None)
    settings = read_run_config(run_config(config | {"out": str(out)}))
    by_key: Place = lambda node, name: grid.admissions.client_of(node.name, node.identity)  # noqa: E731
    return deploy(transport, settings, place or by_key, progress or StatusCallback())


def simulated(config: dict[str, Any], out: Path) -> RunResult:
    return run(read_run_config(run_config(config)).experiment, out=out)


def failures(folder: Path) -> list[tuple[int, int, str]]:
    found = [event for event in read_events(folder) if event["event"] == "client-failed"]
    return [(event["round"], event["client"], event["code"]) for event in found]


def participants(folder: Path) -> list[list[int]]:
    return [event["participants"] for event in read_events(folder) if event["event"] == "round"]


def kind(message: Message) -> tuple[str, int, str]:
    """Return what a message asks for: the action, the round and the verb."""
    header = unwrap(message.content).header
    action = message.metadata.message_type.partition(".")[2]
    return action, int(header.get("round", 0)), str(header.get("verb", ""))


class Once:
    """The first message of this kind to a node has this fate; `then` is done before it."""

    def __init__(self, number: int, kind: tuple[str, int, str], fate: str, then: Callable[[], None] | None = None):
        self.number, self.kind, self.fate, self.then, self.times = number, kind, fate, then, 0

    def __call__(self, number: int, message: Message) -> str:
        if (number, kind(message)) != (self.number, self.kind):
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
