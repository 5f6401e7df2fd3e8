"""Everything here needs flwr; without it, nothing here is collected."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.deployments import CLIENTS, FIRST, apart, exported, node, settings, undisturbed

if TYPE_CHECKING:
    from tests.flower.inmemory import MemoryGrid

__all__ = ["apart", "exported", "settings", "undisturbed"]

if importlib.util.find_spec("flwr") is None:
    collect_ignore_glob = ["*.py"]


@pytest.fixture
def grid(apart: Path, tmp_path: Path) -> "MemoryGrid":
    """Three nodes, each with its own data."""
    from tests.flower.inmemory import MemoryGrid

    return MemoryGrid({FIRST + number: node(apart, tmp_path, number) for number in range(CLIENTS)})
