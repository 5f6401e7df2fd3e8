"""Finished runs to make pages of."""

import shutil
from pathlib import Path

import pytest
from tests.tiny import tiny_keys

from refprotofl import Experiment
from refprotofl.federation import run

TINY = tiny_keys(train_limit=300, rounds=4, evaluate={"every": 2, "test-limit": 60})


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(Experiment.parse(TINY), out=tmp_path_factory.mktemp("finished") / "run").folder


@pytest.fixture
def finished(_finished: Path, tmp_path: Path) -> Path:
    """A run of four clients and four rounds, two of them evaluated."""
    return Path(shutil.copytree(_finished, tmp_path / "run"))


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods with two seeds each."""
    place = tmp_path_factory.mktemp("grid") / "grid"
    for method in ("refprotofl", "fedavg"):
        for seed in (0, 1):
            run(Experiment.parse({**TINY, "method": method, "seed": seed}), out=place / f"{method}-{seed}")
    return place
