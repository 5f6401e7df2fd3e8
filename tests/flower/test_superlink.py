"""The server's program: its database refuses no request, only itself keeps to one core, and runs have processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.flower.breaking import processes
from tests.flower.loopback import free_port
from tests.flower.site import Site as RealSite

from refprotofl.deploy.server_process import process_of
from refprotofl.deploy.site import Site, SiteKeys, create_site
from refprotofl.engines.flower import internals, superlink
from refprotofl.engines.flower.superlink import TOKEN, Launcher

IN_A_ROW = """
import sys, threading, time
from flwr.supercore.sql_mixin import SqlMixin
from refprotofl.engines.flower.internals import queue_for_database

class State(SqlMixin):
    pass

queue_for_database()
state = State(sys.argv[1])
state.initialize()
state.query("CREATE TABLE seen (number INTEGER)")
refused = []

def write(number):
    try:
        with state.session():
            state.query("INSERT INTO seen VALUES (:number)", {"number": number})
            time.sleep(0.4)  # as one does that waits for its turn
    except Exception as problem:
        refused.append(type(problem).__name__)

writers = [threading.Thread(target=write, args=(number,)) for number in range(20)]
for one in writers:
    one.start()
for one in writers:
    one.join()
print(refused, state.query("SELECT count(*) AS n FROM seen"))
"""


def test_writers_stand_in_a_row_and_none_is_refused(tmp_path: Path) -> None:
    """Twenty that take eight seconds together: with Flower's own command seven of them were refused."""
    command = [sys.executable, "-c", IN_A_ROW, str(tmp_path / "state.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] [{'n': 20}]"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    keys = SiteKeys(host="127.0.0.1", port=free_port(), operator_port=free_port(), nodes=1, insecure=True)
    return create_site(tmp_path / "site", keys)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_it_keeps_to_one_core_and_stops_on_a_signal(site: Site) -> None:
    users = RealSite(site.folder)
    try:
        users.refprotofl("deploy", "start", str(site.folder))
        process = process_of(site)
        assert process is not None
        assert len(os.sched_getaffinity(process)) == 1
    finally:
        found = users.refprotofl("deploy", "stop", str(site.folder))
    assert "The server is stopped." in found
    assert process not in processes(str(site.folder))
    assert "No server of" in users.refprotofl("deploy", "stop", str(site.folder))


class Tasks:
    """Flower's record of tasks: those that wait, those under way, and why one failed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[tuple[int, int, str]] = []
        self.alive: set[int] = set()
        self.failed: dict[int, str] = {}
        monkeypatch.setattr(internals, "acquire_run", self.acquire)
        monkeypatch.setattr(internals, "unfinished", lambda app, tasks=None: set(self.alive))
        monkeypatch.setattr(internals, "fail_task", self.fail)

    def acquire(self, app: Any) -> tuple[int, int, str] | None:
        if not self.waiting:
            return None
        found = self.waiting.pop(0)
        self.alive.add(found[1])
        return found

    def fail(self, app: Any, task: int, reason: str) -> None:
        self.alive.discard(task)
        self.failed[task] = reason


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    return Tasks(monkeypatch)


@pytest.fixture
def launcher(site: Site, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    monkeypatch.setattr(superlink, "LOOK", 0.05)
    launcher = Launcher(site, None)
    yield launcher
    launcher.stop()


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have a script run in the place of a run's process."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not done():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_run_has_a_process_that_knows_its_token_and_shows_it_on_no_command_line(
    launcher: Launcher, tasks: Tasks, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, f'echo "$@"; echo "token ${TOKEN}"; exec sleep 600')
    tasks.waiting = [(41, 1, "a-secret-token")]
    launcher.start()
    log = site.runs / "41.log"
    wait_until(lambda: log.exists() and "token" in log.read_text())
    words, token = log.read_text().splitlines()
    assert words == f"-m refprotofl.engines.flower.run_process {site.folder.absolute()} 41"
    assert token == "token a-secret-token"
    (process,) = launcher._started.values()
    launcher.stop()
    assert process.poll() is not None


def test_a_process_that_ends_without_a_word_fails_its_run_at_once(
    launcher: Launcher, tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, "kill -KILL $$")
    tasks.waiting = [(41, 1, "x")]
    launcher.start()
    wait_until(lambda: bool(tasks.failed))
    assert tasks.failed == {1: f"Its process ended (exit code -{signal.SIGKILL.value}): killed, or out of memory."}
    wait_until(lambda: not launcher._started)


def test_a_run_that_the_operator_stopped_loses_its_process(
    launcher: Launcher, tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, "exec sleep 600")
    tasks.waiting = [(41, 1, "x")]
    launcher.start()
    wait_until(lambda: bool(launcher._started))
    (process,) = launcher._started.values()
    tasks.alive.clear()
    wait_until(lambda: not launcher._started)
    assert process.returncode == -signal.SIGTERM.value
    assert tasks.failed == {}


def test_runs_that_were_under_way_before_a_restart_are_not_shown_as_running(launcher: Launcher, tasks: Tasks) -> None:
    tasks.alive = {1, 2}
    launcher.start()
    assert tasks.failed == dict.fromkeys((1, 2), internals.RESTARTED)


def test_a_database_that_is_busy_for_once_does_not_end_the_runs_to_come(
    launcher: Launcher, tasks: Tasks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, "exec sleep 600")
    acquire, failures = tasks.acquire, iter([OSError("busy")])

    def sometimes(app: Any) -> tuple[int, int, str] | None:
        for problem in failures:
            raise problem
        return acquire(app)

    monkeypatch.setattr(internals, "acquire_run", sometimes)
    tasks.waiting = [(41, 1, "x")]
    launcher.start()
    wait_until(lambda: bool(launcher._started))
