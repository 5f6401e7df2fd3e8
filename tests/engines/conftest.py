"""A small uneven federation on digits."""

from collections.abc import Callable
from typing import Any

import pytest

from refprotofl.experiment import Experiment

UNEVEN: dict[str, Any] = {
    "dataset": "digits",
    "train-limit": 250,
    "clients": 5,
    "fraction": 0.6,
    "alpha": 0.3,
    "rounds": 3,
    "min-size": 10,
    "public": {"per-class": 2},
    "train": {"batch-size": 16},
    "model": {"name": "mlp", "embedding": 16},
    "evaluate": {"every": 2, "test-limit": 40},
}


@pytest.fixture(scope="session")
def uneven() -> Callable[..., Experiment]:
    return lambda **changes: Experiment.parse(UNEVEN | changes)
