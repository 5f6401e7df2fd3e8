"""A received folder may name code; it is never run without consent."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from refprotofl.core.errors import InputError
from refprotofl.export import export, load_exported, load_trained

if TYPE_CHECKING:
    from tests.cli.conftest import Command

CODE = """
from pathlib import Path
from torch import nn
from refprotofl.methods import find_method

Path("code-was-run").touch()

class Own:
    server = find_method("fedavg").server
    client = find_method("fedavg").client

def build(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 8))
"""
NAMED = {
    "method": ("method=code_from_outside:Own",),
    "model.name": ("model.name=code_from_outside:build",),
}


def forget() -> None:
    sys.modules.pop("code_from_outside", None)
    Path("code-was-run").unlink(missing_ok=True)


@pytest.fixture(params=NAMED)
def key(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def received(refprotofl: "Command", tiny: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run of one round of which some clients never trained; importing its code leaves a trace."""
    Path("code_from_outside.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    sets = [word for setting in NAMED[key] for word in ("--set", setting)]
    sets += ["--set", "rounds=1", "--set", "fraction=0.5", "--workers", "1"]
    outcome = refprotofl("run", tiny, *sets, "--out", "received")
    assert outcome.code == 0, outcome.err
    forget()
    yield Path("received")
    forget()


def code_was_run() -> bool:
    return Path("code-was-run").exists()


def test_verify_runs_no_code(refprotofl: "Command", received: Path) -> None:
    outcome = refprotofl("verify", received)
    assert outcome.code == 0, outcome.err
    assert "round 1 is intact" in outcome.out
    assert "For 1 clients that never trained, the digests in the manifest were used." in outcome.err
    assert not code_was_run()


def test_the_others_say_what_they_would_import(refprotofl: "Command", received: Path, key: str) -> None:
    (received / "summary.json").unlink()
    commands = {
        "resume": ("run", "--resume", "--workers", 1, "--out", received),
        "predict": ("predict", received, "--client", 0, "digits"),
        "export": ("export", received, "--client", 0, "--out", "model"),
    }
    for command in commands.values():
        outcome = refprotofl(*command)
        assert outcome.code == 2
        assert f"received names code that would be imported and run: {key} = 'code_from_outside:" in outcome.err
        assert "--trust-code" in outcome.err
        assert not code_was_run()
    for name in ("resume", "export"):
        assert refprotofl(*commands[name], "--trust-code").code == 0
        assert code_was_run()


def test_what_was_typed_is_trusted(refprotofl: "Command", received: Path, key: str) -> None:
    (received / "summary.json").unlink()
    (setting,) = NAMED[key]
    other = setting.replace("code_from_outside", "something_else")
    for typed, code in ((other, 2), (setting, 0)):
        outcome = refprotofl("run", "--resume", "--workers", 1, "--out", received, "--set", typed)
        assert outcome.code == code
    assert code_was_run()


def test_an_interrupted_run_of_ones_own_code_offers_a_command_that_works(
    refprotofl: "Command", received: Path, tiny: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("refprotofl.federation.loop.Loop.run", interrupt)
        outcome = refprotofl("run", tiny, "--set", NAMED[key][0], "--workers", 1, "--out", "stopped")
    assert outcome.code == 130
    command = shlex.split(outcome.err.splitlines()[-1].partition("Resume with: refprotofl ")[2])
    assert refprotofl(*command, "--workers", 1).code == 0


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_in_python(received: Path, key: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trust_code=True"):
        load_trained(received, 0)
    assert not code_was_run()
    export(load_trained(received, 0, trust_code=True), tmp_path / "model")
    forget()
    card = (tmp_path / "model" / "README.md").read_text()
    assert ('load_exported(".", trust_code=True)' in card) == (key == "model.name")
    if key == "model.name":
        with pytest.raises(InputError, match=r"model\.name = 'code_from_outside:build'"):
            load_exported(tmp_path / "model")
        assert not code_was_run()
        load_exported(tmp_path / "model", trust_code=True)
        assert code_was_run()
    else:
        load_exported(tmp_path / "model")
        assert not code_was_run()


def test_code_that_only_the_data_came_from_is_not_needed_for_a_model(
    refprotofl: "Command", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("loader_from_outside.py").write_text(
        "import numpy as np\n"
        "def load():\n"
        "    x, y = np.arange(960, dtype=np.uint8).reshape(60, 4, 4), np.arange(60) % 3\n"
        "    return {'x_train': x, 'y_train': y, 'x_test': x, 'y_test': y}\n"
    )
    sets = (
        "--set",
        "dataset=loader_from_outside:load",
        "--set",
        "min-size=2",
        "--set",
        "clients=2",
        "--set",
        "rounds=1",
    )
    assert refprotofl("run", *sets, "--workers", 1, "--out", "made").code == 0
    sys.modules.pop("loader_from_outside")
    load_trained(Path("made"), 0)
    assert "loader_from_outside" not in sys.modules
    outcome = refprotofl("run", "--resume", "--out", "made")
    assert outcome.code == 2
    assert "dataset = 'loader_from_outside:load'" in outcome.err


def test_trusted_code_is_found_where_the_run_was_started(
    refprotofl: "Command", received: Path, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [place for place in sys.path if place != str(Path.cwd())])
    folder = received.absolute()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    export = ("export", folder, "--client", "0", "--out", "exported")
    assert refprotofl(*export).code == 2  # not without consent
    outcome = refprotofl(*export, "--trust-code")
    assert outcome.code == 0, outcome.err
