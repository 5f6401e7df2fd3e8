"""Everything here needs flwr; without it, nothing here is collected."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from refprotofl.data import load_federated
from refprotofl.data.client_files import export_federation
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import load_experiment
from refprotofl.federation.session import run

if TYPE_CHECKING:
    from tests.flower.inmemory import MemoryGrid

if importlib.util.find_spec("flwr") is None:
    collect_ignore_glob = ["*.py"]

CLIENTS = 3
FEDERATION: dict[str, Any] = {"clients": CLIENTS, "min-size": 10, "public": {"per-class": 5}}


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
def settings(exported: Path) -> Callable[..., dict[str, Any]]:
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
def undisturbed(settings: Callable[..., dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same run in this process."""
    config = settings()
    keys = [f"{name}={value}" for name, value in config.items() if name != "preset"]
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    return run(load_experiment(preset=config["preset"], settings=keys), out=folder).folder


@pytest.fixture
def grid(apart: Path, tmp_path: Path) -> "MemoryGrid":
    """Three nodes, each with its own data."""
    from tests.flower.deploying import node
    from tests.flower.inmemory import FIRST, MemoryGrid

    return MemoryGrid({FIRST + number: node(apart, tmp_path, number) for number in range(CLIENTS)})
