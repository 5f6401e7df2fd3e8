"""The worker engine by itself, with clients that only echo."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.engines.host import Result, Task
from refprotofl.engines.workers import WorkerEngine, balanced
from refprotofl.errors import RunError

SIZES = st.lists(st.integers(0, 50), min_size=1, max_size=7)
MEGABYTE = 1 << 20

ECHO = """
    import os, time
    from refprotofl.engines.host import Result
    from refprotofl.errors import InputError, RunError

    class Host:
        def __init__(self, greeting):
            self.greeting = greeting
        def answer(self, task):
            if task.verb == "die":
                os._exit(7)
            if task.verb == "sleep":
                time.sleep(60)
            return Result(self.greeting + task.payload, seconds=float(task.client))
        def commit(self, round):
            if round == 13:
                raise RunError("The disk is full.")
            return {os.getpid(): {"round": round}}

    def build(specification):
        if specification == b"refuse":
            raise InputError("there is no such thing")
        return Host(specification)
"""


PARENT = """
import sys, time
sys.path.insert(0, sys.argv[1])
import echoing_host
from refprotofl.engines.host import Task
from refprotofl.engines.workers import WorkerEngine

if __name__ == "__main__":
    engine = WorkerEngine(echoing_host.build, b"", [1], 1)
    engine.wait_until_ready()
    engine.submit(Task(0, "sleep", 1, b""))
    print(engine._processes[0].pid, flush=True)
    time.sleep(60)
"""


def loads(home: list[int], sizes: list[int], workers: int) -> list[int]:
    return [sum(size for size, place in zip(sizes, home, strict=True) if place == worker) for worker in range(workers)]


@settings(deadline=None)
@given(SIZES, st.integers(1, 3))
def test_the_busiest_worker_has_at_most_four_thirds_of_the_best_split(sizes: list[int], workers: int) -> None:
    home = balanced(sizes, workers)
    assert len(home) == len(sizes)
    assert set(home) <= set(range(workers))
    splits = itertools.product(range(workers), repeat=len(sizes))
    best = min(max(loads(list(split), sizes, workers)) for split in splits)
    assert 3 * max(loads(home, sizes, workers)) <= 4 * best


@settings(deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200), st.integers(1, 32))
def test_no_worker_is_idle_while_another_has_two_clients(sizes: list[int], workers: int) -> None:
    home = balanced(sizes, workers)
    if len(sizes) >= workers:
        assert set(home) == set(range(workers))
    assert home == balanced(sizes, workers)


def within(seconds: float, work: Callable[[], object]) -> None:
    """Fails instead of hanging for ever."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "the engine hangs"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "echoing_host.py").write_text(textwrap.dedent(ECHO))
    return folder


@pytest.fixture(scope="module")
def open_engine(hosts: Path) -> Iterator[Callable[..., WorkerEngine]]:
    """Engines over echoing hosts, in a module that worker processes can import."""
    opened: list[WorkerEngine] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(hosts)
        import echoing_host

        def opener(workers: int, specification: bytes = b"") -> WorkerEngine:
            opened.append(WorkerEngine(echoing_host.build, specification, [1] * 4, workers))
            return opened[-1]

        yield opener
    for engine in opened:
        engine.close()


@pytest.fixture(scope="module")
def pair(open_engine: Callable[..., WorkerEngine]) -> WorkerEngine:
    engine = open_engine(2, b"hello ")
    engine.wait_until_ready()
    return engine


def test_answers_wait_for_their_tickets(pair: WorkerEngine) -> None:
    tickets = [pair.submit(Task(client, "echo", 1, b"%d" % client)) for client in range(4)]
    answers = [pair.result(ticket) for ticket in reversed(tickets)]
    assert [answer.payload for answer in answers] == [b"hello 3", b"hello 2", b"hello 1", b"hello 0"]
    assert [answer.seconds for answer in answers] == [3.0, 2.0, 1.0, 0.0]


def test_messages_larger_than_a_pipe_do_not_block(pair: WorkerEngine) -> None:
    results: list[Result] = []

    def exchange() -> None:
        payloads = [os.urandom(4 * MEGABYTE) for _ in range(8)]
        tickets = [pair.submit(Task(number % 4, "echo", 1, data)) for number, data in enumerate(payloads)]
        results.extend(pair.result(ticket) for ticket in tickets)
        assert [result.payload for result in results] == [b"hello " + data for data in payloads]

    within(60, exchange)
    assert len(results) == 8


def test_a_commit_reaches_every_worker_and_drops_what_nobody_waits_for(pair: WorkerEngine) -> None:
    for client in range(4):
        pair.submit(Task(client, "echo", 2, bytes(MEGABYTE)))
    written = pair.commit(2)
    assert len(written) == 2  # each worker gave its own number
    assert all(record == {"round": 2} for record in written.values())
    assert pair.result(pair.submit(Task(0, "echo", 3, b"again"))).payload == b"hello again"


def test_a_commit_that_fails_in_a_worker_fails(pair: WorkerEngine) -> None:
    with pytest.raises(RunError, match=r"The disk is full\."):
        pair.commit(13)


def test_a_worker_that_ends_is_told_with_its_exit_code(pair: WorkerEngine) -> None:
    """The last test of this engine: it kills a worker."""
    ticket = pair.submit(Task(0, "die", 1, b""))
    with pytest.raises(RunError, match=r"ended unexpectedly \(exit code 7\).*fewer --workers.*--resume"):
        pair.result(ticket)


def test_a_worker_that_cannot_start_says_why(open_engine: Callable[..., WorkerEngine]) -> None:
    engine = open_engine(1, b"refuse")
    with pytest.raises(RunError, match="there is no such thing"):
        engine.wait_until_ready()


def test_closing_does_not_wait_for_a_busy_worker(open_engine: Callable[..., WorkerEngine]) -> None:
    engine = open_engine(1)
    engine.wait_until_ready()
    (process,) = engine._processes
    engine.submit(Task(0, "sleep", 1, b""))
    within(10, engine.close)
    assert process.exitcode == -signal.SIGKILL


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_busy_worker_ends_when_its_parent_is_killed(hosts: Path) -> None:
    script = hosts / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, script, hosts], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert is_alive(worker)
        parent.kill()
    deadline = time.monotonic() + 10
    while is_alive(worker):
        assert time.monotonic() < deadline, "the worker outlives its parent"
        time.sleep(0.05)
