"""Searches whose runs take a second."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny_settings

from refprotofl.studies.trials import Base
from refprotofl.studies.tune.search import Request
from refprotofl.studies.tune.space import read_dimension

TINY = tiny_settings(train_limit=100, clients=2, rounds=3, evaluate={"every": 10})

Ask = Callable[..., Request]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    def make(
        methods: Sequence[str] = ("local",), search: Sequence[str] = ("train.lr=0.01,0.1",), **more: Any
    ) -> Request:
        asked: dict[str, Any] = {
            "base": Base(None, "quick", tuple(more.pop("settings", TINY))),
            "strategy": "each",
            "trials": 3,
            "seeds": (7,),
            "protocol": "personal",
            "out": tmp_path / "tune",
        }
        dimensions = tuple(map(read_dimension, search))
        return Request(methods=tuple(methods), dimensions=dimensions, **{**asked, **more})

    return make
