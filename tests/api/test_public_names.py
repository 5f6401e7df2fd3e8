"""The package as Python sees it: its names, its version, its errors, its progress."""

import io
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import refprotofl
from refprotofl import Experiment, InputError, ProgressCallback, run
from refprotofl.experiment.presets import load_experiment

TINY: dict[str, Any] = {
    "train_limit": 200,
    "clients": 2,
    "rounds": 2,
    "min_size": 10,
    "model": {"name": "mlp", "embedding": 8},
    "public": {"per-class": 2},
    "evaluate": {"every": 1, "test-limit": 20},
}


def test_every_public_name_is_shown_and_there() -> None:
    assert {"Experiment", "run", "ProgressCallback", "InputError", "__version__"} <= set(dir(refprotofl))
    assert all(getattr(refprotofl, name) is not None for name in dir(refprotofl))
    with pytest.raises(AttributeError, match="no attribute 'Experimint'"):
        _ = refprotofl.Experimint


def test_the_version_is_that_of_the_distribution() -> None:
    assert refprotofl.__version__ == version("refprotofl")


def test_looking_at_the_names_does_not_import_torch() -> None:
    code = "import sys, refprotofl; dir(refprotofl); refprotofl.__version__; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


@pytest.mark.parametrize("command", ["--help", "run --help", "methods thin", "partition --preset quick"])
def test_commands_that_compute_nothing_do_not_import_torch(command: str) -> None:
    code = f"""
import sys, refprotofl.cli
sys.argv = ["refprotofl", *{command.split()!r}]
try:
    refprotofl.cli.main()
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""
    went = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (went.returncode, went.stderr.splitlines()[-1]) == (0, "False")


@pytest.mark.parametrize(
    ("values", "setting"),
    [
        ({"clients": 0}, "clients=0"),
        ({"min_size": "x"}, "min-size=x"),
        ({"train": {"lr": -1}}, "train.lr=-1"),
        ({"roundz": 3}, "roundz=3"),
        ({"method": "refprotofl", "share": "full"}, "share=full"),
    ],
)
def test_an_experiment_complains_in_the_words_of_the_command(values: dict[str, Any], setting: str) -> None:
    with pytest.raises(InputError) as in_python:
        Experiment(**values)
    with pytest.raises(InputError) as on_the_command_line:
        load_experiment(preset="quick", settings=[setting])
    assert str(in_python.value) == str(on_the_command_line.value)


@pytest.mark.parametrize("workers", [0, -1, "many", 1.5, True])
def test_run_refuses_workers_that_are_none(workers: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="allowed are auto or a whole number of at least 1"):
        run(Experiment(**TINY), out=tmp_path / "run", workers=workers)
    assert not (tmp_path / "run").exists()


def test_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(Experiment(**TINY | {"rounds": 1}), out="~/runs/a").folder == tmp_path / "runs" / "a"


def test_progress_is_shown(tmp_path: Path) -> None:
    screen = Console(file=io.StringIO(), width=100)
    run(Experiment(**TINY), out=tmp_path / "run", callback=ProgressCallback(screen))
    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["refprotofl on digits", "round 1/2", "round 2/2"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_callback_is_closed_when_the_run_is_over(tmp_path: Path, fails: bool) -> None:
    class Watching(refprotofl.Callback):
        closed = 0

        def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
            if fails:
                raise KeyboardInterrupt

        def on_close(self) -> None:
            self.closed += 1

    callback = Watching()
    try:
        run(Experiment(**TINY), out=tmp_path / "run", callback=callback)
    except KeyboardInterrupt:
        assert fails
    assert callback.closed == 1
