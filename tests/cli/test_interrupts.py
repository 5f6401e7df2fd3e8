"""Real processes, really killed: workers do not outlive them, and the run resumes where it stopped."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from refprotofl.experiment.presets import load_experiment
from refprotofl.federation import RunResult, run

if TYPE_CHECKING:
    from tests.cli.conftest import Command
ROUNDS = 25
PATIENCE = 60.0  # a slow machine is no failure

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


@pytest.fixture(scope="module")
def long(tiny: Path) -> Path:
    """Rounds enough to be in the middle of."""
    file = tiny.with_name("long.toml")
    file.write_text(
        tiny.read_text().replace("rounds = 2", f"rounds = {ROUNDS}").replace("every = 1", f"every = {ROUNDS}")
    )
    return file


@pytest.fixture(scope="module")
def whole(long: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(load_experiment(long), out=tmp_path_factory.mktemp("whole") / "run")


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """The command in a process group of its own."""
    command = [sys.executable, "-c", "from refprotofl.cli import main; main()", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


def group_members(group: int) -> list[int]:
    """The processes of a group that still run."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                state, _, of_group = (entry / "stat").read_text().rpartition(") ")[2].split()[:3]
            except OSError:
                continue  # it has just ended
            if int(of_group) == group and state != "Z":
                members.append(int(entry.name))
    return members


def rounds_told(folder: Path) -> list[int]:
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    return [event["round"] for event in events if event["event"] == "round"]


def assert_the_rest_is_as_ever(refprotofl: "Command", command: list[str], folder: Path, whole: RunResult) -> None:
    done = len(rounds_told(folder))
    assert 1 <= done < ROUNDS
    outcome = refprotofl(*command, "--workers", 1, "--json")
    assert outcome.code == 0, outcome.err
    summary = json.loads(outcome.out)
    assert summary["state_digest"] == whole.summary["state_digest"]
    assert summary["communication"] == whole.summary["communication"]
    assert rounds_told(folder) == list(range(1, ROUNDS + 1))


def test_kill_9_in_the_middle(refprotofl: "Command", long: Path, whole: RunResult, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with started("run", long, "--workers", 2, "--out", folder) as process:
        until(lambda: len(rounds_told(folder)) >= 2, "two rounds")
        assert len(group_members(process.pid)) >= 3  # the run itself and its two workers
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        until(lambda: not group_members(process.pid), "the workers to end by themselves")
    assert_the_rest_is_as_ever(refprotofl, ["run", "--resume", "--out", str(folder)], folder, whole)


@pytest.mark.parametrize(("name", "workers"), [("SIGINT", 2), ("SIGTERM", 1)])
def test_an_interrupt_names_the_command_that_continues(
    refprotofl: "Command", long: Path, whole: RunResult, tmp_path: Path, name: str, workers: int
) -> None:
    folder = tmp_path / "a run"
    with started("run", long, "--workers", workers, "--out", folder, "--json") as process:
        until(lambda: len(rounds_told(folder)) >= 2, "two rounds")
        if name == "SIGINT":
            os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches the workers too
        else:
            process.terminate()
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, err
        until(lambda: not group_members(process.pid), "everything that the run started to end")
    assert out == ""
    assert "Traceback" not in err
    assert re.search(rf"Kept in .*: \d+ of {ROUNDS} rounds\.", err)
    command = shlex.split(err.splitlines()[-1].partition("Interrupted. Resume with: ")[2])
    assert command == ["refprotofl", "run", "--resume", "--out", str(folder)]
    assert_the_rest_is_as_ever(refprotofl, command[1:], folder, whole)


def test_an_interrupt_while_workers_start_shows_no_stack_trace(long: Path, tmp_path: Path) -> None:
    with started("run", long, "--workers", 2, "--out", tmp_path / "run") as process:
        until(lambda: len(group_members(process.pid)) >= 3, "workers")
        time.sleep(0.3)  # they are still importing
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, err
        until(lambda: not group_members(process.pid), "everything that the run started to end")
    assert "Traceback" not in err
    assert "Interrupted. Resume with: refprotofl run --resume" in err


def test_an_interrupt_before_there_is_a_run_offers_nothing_to_resume(
    refprotofl: "Command", tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("refprotofl.data.federated.load_dataset", interrupt)
    outcome = refprotofl("run", tiny, "--workers", 1)
    assert outcome.code == 130
    assert outcome.err == "error: Interrupted before the run started; nothing was written.\n"
    assert not Path("runs").exists()


@pytest.mark.parametrize("command", ["run", "compare"])
def test_an_interrupt_during_imports_says_that_nothing_was_written(
    refprotofl: "Command", tiny: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("refprotofl.cli.run.read_workers", interrupt)
    monkeypatch.setattr("refprotofl.cli.compare.read_workers", interrupt)
    outcome = refprotofl(command, tiny, *(["--methods", "local"] if command == "compare" else []))
    assert outcome.code == 130
    assert outcome.err == "error: Interrupted before the run started; nothing was written.\n"


def test_an_interrupt_at_once_shows_no_stack_trace() -> None:
    code = (
        "import threading, _thread; from refprotofl.cli import main; "
        "threading.Timer(0.05, _thread.interrupt_main).start(); main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "run"], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "nothing was written" in done.stderr
