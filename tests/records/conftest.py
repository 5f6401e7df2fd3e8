"""A federation so small that a whole run takes a tenth of a second."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, RunResult, run


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Experiment]:
    """An experiment of two clients and two rounds on 4 x 4 images of three classes; keys can be changed."""
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 3
    images = (generator.integers(0, 100, (60, 4, 4)) + 60 * labels[:, None, None]).astype(np.uint8)
    file = tmp_path_factory.mktemp("data") / "tiny.npz"
    np.savez(file, x_train=images[:45], y_train=labels[:45], x_test=images[45:], y_test=labels[45:])
    usual: dict[str, Any] = {
        "dataset": str(file),
        "rounds": 2,
        "clients": 2,
        "min-size": 5,
        "public": {"per-class": 2},
        "model": {"name": "mlp", "embedding": 8},
        "evaluate": {"every": 1},
    }
    return lambda **changes: Experiment.parse(usual | {key.replace("_", "-"): value for key, value in changes.items()})


@pytest.fixture(scope="session")
def undisturbed(tiny: Callable[..., Experiment], tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """The run that every disturbed run must be equal to."""
    return run(tiny(), out=tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.fixture
def finished_copy(undisturbed: RunResult, tmp_path: Path) -> Path:
    """A finished run to be spoilt."""
    return Path(shutil.copytree(undisturbed.folder, tmp_path / "finished"))


class _CutOff(Callback):
    def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
        raise KeyboardInterrupt


@pytest.fixture(scope="session")
def _one_round(tiny: Callable[..., Experiment], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("one-round") / "run"
    with pytest.raises(KeyboardInterrupt):
        run(tiny(), out=out, callback=_CutOff())
    return out


@pytest.fixture
def cut_off(_one_round: Path, tmp_path: Path) -> Path:
    """A run that was interrupted when one of its two rounds was committed."""
    return Path(shutil.copytree(_one_round, tmp_path / "cut-off"))
