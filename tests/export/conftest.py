"""Tiny finished runs, made once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from refprotofl.experiment import Experiment
from refprotofl.federation import run

TINY = {"dataset": "digits", "rounds": 2, "clients": 3, "min-size": 10, "public": {"per-class": 2}}


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def make(**changes) -> Path:
        out = tmp_path_factory.mktemp("run") / "it"
        return run(Experiment.parse({**TINY, "model": {"name": "mlp"}, **changes}), out=out).folder

    return make


@pytest.fixture(scope="session")
def mlp_run(make_run: Callable[..., Path]) -> Path:
    return make_run()


@pytest.fixture(scope="session")
def cnn_run(make_run: Callable[..., Path]) -> Path:
    return make_run(model={"name": "cnn", "norm": "batch-local"})


@pytest.fixture(scope="session")
def local_run(make_run: Callable[..., Path]) -> Path:
    """One client a round: of three, one at least never trains."""
    return make_run(method="local", fraction=0.34)
