"""Cells that are run in a second."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny_settings

from refprotofl.federation.session import Callback
from refprotofl.studies.cells import Cell, cell_of

TINY = tiny_settings(train_limit=100, clients=2, evaluate={"every": 1})

MakeCell = Callable[..., Cell]


@pytest.fixture
def tiny(tmp_path: Path) -> MakeCell:
    """A cell of an own method, seed and settings, whose run would lie in runs/."""

    def make(name: str = "local", seed: int = 0, *settings: str) -> Cell:
        return cell_of(None, "quick", [*TINY, *settings], name, seed, tmp_path / "runs")

    return make


@pytest.fixture
def unwatched() -> Callable[[int, Cell], Callback]:
    return lambda number, cell: Callback()


@pytest.fixture
def no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on whatever runs anything fails the test."""

    def fail(*_: Any, **__: Any) -> None:
        pytest.fail("a run was begun")

    monkeypatch.setattr("refprotofl.studies.runner.run", fail)
