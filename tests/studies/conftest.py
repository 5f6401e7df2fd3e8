"""Trials that are run in a second."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny_settings

from refprotofl.federation import Callback
from refprotofl.studies.rows import Row
from refprotofl.studies.trials import Base, Trial

TINY = tiny_settings(train_limit=100, clients=2, evaluate={"every": 1})

MakeTrial = Callable[..., Trial]


@pytest.fixture
def tiny(tmp_path: Path) -> MakeTrial:
    """A trial of an own method, seed and settings, in a folder of runs/."""

    def make(name: str = "local", seed: int = 0, *settings: str) -> Trial:
        return Base(None, "quick", (*TINY, *settings)).trial(Row(name, name), seed, tmp_path / "runs")

    return make


@pytest.fixture
def unwatched() -> Callable[[Trial], Callback]:
    return lambda trial: Callback()


@pytest.fixture
def no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on whatever runs anything fails the test."""

    def fail(*_: Any, **__: Any) -> None:
        pytest.fail("a run was begun")

    monkeypatch.setattr("refprotofl.studies.pool.run", fail)
