"""The contract of a transport: every test here runs over each of them, over Flower where flwr is installed."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.deployments import CLIENTS, FIRST, Grid, apart, exported, node, settings, undisturbed
from tests.mqtt.inmemory import MqttGrid

__all__ = ["apart", "exported", "settings", "undisturbed"]

MakeGrid = Callable[..., Grid]  # of the nodes' settings, and their names
needs_flower = pytest.mark.skipif(importlib.util.find_spec("flwr") is None, reason="flwr is not installed")


@pytest.fixture(params=["mqtt", pytest.param("flower", marks=needs_flower)])
def make_grid(request: pytest.FixtureRequest) -> MakeGrid:
    if request.param == "mqtt":
        return MqttGrid
    from tests.flower.inmemory import MemoryGrid

    return MemoryGrid


@pytest.fixture
def grid(make_grid: MakeGrid, apart: Path, tmp_path: Path) -> Grid:
    """Three nodes, each with its own data."""
    return make_grid({FIRST + number: node(apart, tmp_path, number) for number in range(CLIENTS)})
