"""The real command, called in this process, in an empty folder, on a machine without data sets and network."""

import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pooch  # noqa: F401 - its logger must not bind to one test's captured stderr
import pytest
import requests

from refprotofl.cli import main
from refprotofl.experiment.presets import load_experiment
from refprotofl.federation import Callback, RunResult, run


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: Any, **__: Any) -> None:
        raise requests.ConnectionError("there is no network here")

    (tmp_path / "here").mkdir()
    (tmp_path / "no-data").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("REFPROTOFL_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(requests, "get", no_network)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "REFPROTOFL_DEBUG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def refprotofl(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["refprotofl", *map(str, arguments)])
        terminate = signal.getsignal(signal.SIGTERM)
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            signal.signal(signal.SIGTERM, terminate)
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        assert isinstance(ended.value.code, int)
        return Outcome(ended.value.code, out, err)

    return call


def write_npz(file: Path, labels: np.ndarray, tests: int = 15) -> Path:
    """4 x 4 images that are the brighter the later their class."""
    brightness = np.searchsorted(np.unique(labels), labels)[:, None, None]
    images = (np.random.default_rng(0).integers(0, 100, (len(labels), 4, 4)) + 60 * brightness).astype(np.uint8)
    held_out = len(labels) - tests
    np.savez(
        file,
        x_train=images[:held_out],
        y_train=labels[:held_out],
        x_test=images[held_out:],
        y_test=labels[held_out:],
    )
    return file


@pytest.fixture
def make_npz(tmp_path: Path) -> Callable[..., Path]:
    return lambda labels, tests=15: write_npz(tmp_path / "own.npz", np.asarray(labels), tests)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment file of two clients and two rounds."""
    folder = tmp_path_factory.mktemp("tiny")
    data = write_npz(folder / "tiny.npz", np.arange(60) % 3)
    file = folder / "tiny.toml"
    file.write_text(
        f"""
        dataset = "{data}"
        rounds = 2
        clients = 2
        min-size = 5
        public.per-class = 2
        model = {{name = "mlp", embedding = 8}}
        evaluate.every = 1
        """
    )
    return file


@pytest.fixture(scope="session")
def undisturbed(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(load_experiment(tiny), out=tmp_path_factory.mktemp("undisturbed") / "run")


@pytest.fixture
def finished_copy(undisturbed: RunResult, tmp_path: Path) -> Path:
    return Path(shutil.copytree(undisturbed.folder, tmp_path / "finished"))


class _CutOff(Callback):
    def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
        raise KeyboardInterrupt


@pytest.fixture(scope="session")
def _one_round(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("one-round") / "run"
    with pytest.raises(KeyboardInterrupt):
        run(load_experiment(tiny), out=out, callback=_CutOff())
    return out


@pytest.fixture
def cut_off(_one_round: Path, tmp_path: Path) -> Path:
    """A run that was interrupted when one of its two rounds was committed."""
    return Path(shutil.copytree(_one_round, tmp_path / "cut-off"))
