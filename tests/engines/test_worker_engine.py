"""The worker engine by itself, with clients that only echo."""

import importlib
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

from refprotofl.basics.state import Kept
from refprotofl.engines.host import Result, Task
from refprotofl.engines.workers import WorkerEngine
from refprotofl.errors import RunError

MEGABYTE = 1 << 20

ECHO = """
    import os, time
    from refprotofl.engines.host import Result
    from refprotofl.errors import InputError
    from refprotofl.basics.state import Kept

    class Host:
        def __init__(self, greeting):
            self.greeting = greeting
        def answer(self, task):
            if task.verb == "die":
                os._exit(7)
            if task.verb == "sleep":
                time.sleep(60)
            if task.verb == "nap":
                time.sleep(0.2)
            kept = Kept(task.kept.file + "+", str(time.monotonic_ns()), str(os.getpid()))
            return Result(self.greeting + task.payload, kept)

    def build(specification):
        if specification == b"refuse":
            raise InputError("there is no such thing")
        return Host(specification)
"""


PARENT = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
import echoing_host
from refprotofl.engines.host import Task
from refprotofl.engines.workers import WorkerEngine

if __name__ == "__main__":
    engine = WorkerEngine(echoing_host.build, [b""], [1])
    engine._hear(0)
    ticket = engine.submit(Task(0, "sleep", 1))
    threading.Thread(target=engine.result, args=(ticket,), daemon=True).start()
    print(engine._processes[0].pid, flush=True)
    time.sleep(60)
"""


def within(seconds: float, work: Callable[[], object]) -> None:
    """Fails instead of hanging for ever."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "the engine hangs"


def wait_until_ready(engine: WorkerEngine) -> None:
    while engine._starting:
        engine._hear(min(engine._starting))


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
        echoing_host = importlib.import_module("echoing_host")

        def opener(
            workers: int, specification: bytes = b"", sizes: tuple[int, ...] = (1, 1, 1, 1), here: bytes | None = None
        ) -> WorkerEngine:
            meanwhile = None if here is None else echoing_host.build(here)
            opened.append(WorkerEngine(echoing_host.build, [specification] * workers, sizes, meanwhile))
            return opened[-1]

        yield opener
    for engine in opened:
        engine.close()


@pytest.fixture(scope="module")
def pair(open_engine: Callable[..., WorkerEngine]) -> WorkerEngine:
    engine = open_engine(2, b"hello ")
    wait_until_ready(engine)
    return engine


def test_answers_wait_for_their_tickets_and_tell_where_the_state_is(pair: WorkerEngine) -> None:
    tasks = [Task(client, "echo", 1, b"%d" % client, Kept(f"file {client}")) for client in range(4)]
    tickets = [pair.submit(task) for task in tasks]
    answers = [pair.result(ticket) for ticket in reversed(tickets)]
    assert [answer.payload for answer in answers] == [b"hello 3", b"hello 2", b"hello 1", b"hello 0"]
    assert [answer.kept.file for answer in answers if answer.kept] == ["file 3+", "file 2+", "file 1+", "file 0+"]


def test_the_client_with_most_data_is_first(open_engine: Callable[..., WorkerEngine]) -> None:
    engine = open_engine(1, sizes=(5, 20, 20, 100, 7))
    wait_until_ready(engine)
    tickets = {client: engine.submit(Task(client, "echo", 1)) for client in range(5)}
    kept = {client: engine.result(ticket).kept for client, ticket in tickets.items()}
    assert sorted(kept, key=lambda client: int(kept[client].digest)) == [3, 1, 2, 4, 0]  # type: ignore[union-attr]


def test_until_a_worker_is_ready_this_process_answers_for_the_small_clients(
    open_engine: Callable[..., WorkerEngine],
) -> None:
    engine = open_engine(1, b"there ", sizes=(5, 20, 3, 100), here=b"here ")
    tickets = [engine.submit(Task(client, "echo", 1)) for client in range(4)]
    assert engine.result(tickets[0]).payload == b"here "  # a process takes longer to start than this
    assert set(engine._waiting) == {tickets[1], tickets[3]}
    wait_until_ready(engine)
    assert [engine.result(ticket).payload for ticket in tickets[1:]] == [b"there ", b"here ", b"there "]


def test_an_idle_worker_takes_what_the_other_has_no_time_for(pair: WorkerEngine) -> None:
    slow = pair.submit(Task(0, "nap", 1))
    quick = [pair.submit(Task(client % 4, "echo", 1)) for client in range(1, 8)]
    makers = [pair.result(ticket).kept for ticket in (slow, *quick)]
    assert len({kept.changes for kept in makers[1:] if kept}) == 1  # all by the one that did not nap
    assert makers[0] is not None
    assert makers[0].changes not in {kept.changes for kept in makers[1:] if kept}


def test_messages_larger_than_a_pipe_do_not_block(pair: WorkerEngine) -> None:
    results: list[Result] = []

    def exchange() -> None:
        payloads = [os.urandom(4 * MEGABYTE) for _ in range(8)]
        tickets = [pair.submit(Task(number % 4, "echo", 1, data)) for number, data in enumerate(payloads)]
        results.extend(pair.result(ticket) for ticket in tickets)
        assert [result.payload for result in results] == [b"hello " + data for data in payloads]

    within(60, exchange)
    assert len(results) == 8


def test_what_nobody_waits_for_any_more_is_not_done_or_thrown_away(pair: WorkerEngine) -> None:
    first, *_ = [pair.submit(Task(client, "echo", 2, bytes(MEGABYTE))) for client in range(4)]
    pair.result(first)  # by now others are under way
    pair.forget()
    assert not pair._results
    assert not pair._waiting
    assert pair._busy == [None, None]  # nobody writes a state any more
    assert pair.result(pair.submit(Task(0, "echo", 3, b"again"))).payload == b"hello again"


def test_a_worker_that_ends_is_told_with_its_exit_code(pair: WorkerEngine) -> None:
    """The last test of this engine: it kills a worker."""
    ticket = pair.submit(Task(0, "die", 1, b""))
    with pytest.raises(RunError, match=r"ended unexpectedly \(exit code 7\).*fewer --workers.*--resume"):
        pair.result(ticket)


def test_a_worker_that_cannot_start_says_why(open_engine: Callable[..., WorkerEngine]) -> None:
    engine = open_engine(1, b"refuse")
    with pytest.raises(RunError, match="A worker could not start: there is no such thing"):
        engine.result(engine.submit(Task(0, "echo", 1)))


def test_closing_does_not_wait_for_a_busy_worker(open_engine: Callable[..., WorkerEngine]) -> None:
    engine = open_engine(1)
    wait_until_ready(engine)
    (process,) = engine._processes
    engine.submit(Task(0, "sleep", 1, b""))
    engine._feed()
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
