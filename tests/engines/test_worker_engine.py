"""The worker processes by themselves, with clients that only echo."""

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

from refprotofl.core.errors import RunError
from refprotofl.engines.engine import Request
from refprotofl.engines.local.host import Outcome, Task
from refprotofl.engines.local.store import Location
from refprotofl.engines.local.workers import WorkerProcesses

MEGABYTE = 1 << 20

ECHO = """
    import os, time
    from refprotofl.engines.engine import Result
    from refprotofl.engines.local.host import Outcome
    from refprotofl.engines.local.store import Location
    from refprotofl.core.errors import InputError

    class Host:
        def __init__(self, greeting):
            self.greeting = greeting
        def do(self, task):
            if task.deed == "die":
                os._exit(7)
            if task.deed == "sleep":
                time.sleep(60)
            if task.deed == "nap":
                time.sleep(0.2)
            location = Location(task.location.file + "+", str(time.monotonic_ns()), str(os.getpid()))
            return Outcome(Result(self.greeting + task.request.payload), location)

    def build(specification):
        if specification == b"refuse":
            raise InputError("there is no such thing")
        return Host(specification)
"""


PARENT = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
import echoing_host
from refprotofl.engines.engine import Request
from refprotofl.engines.local.host import Task
from refprotofl.engines.local.store import Location
from refprotofl.engines.local.workers import WorkerProcesses

if __name__ == "__main__":
    engine = WorkerProcesses(echoing_host.build, [b""], [1])
    engine._hear(0)
    ticket = engine.submit(Task(0, 1, Location(), Request(0, "sleep", 1)))
    threading.Thread(target=engine.outcome, args=(ticket, None), daemon=True).start()
    print(engine._processes[0].pid, flush=True)
    time.sleep(60)
"""


def task(client: int, verb: str = "echo", payload: bytes = b"", file: str = "") -> Task:
    return Task(client, 1, Location(file), Request(client, verb, 1, payload))


def location(outcome: Outcome) -> Location:
    assert outcome.location is not None
    return outcome.location


def within(seconds: float, work: Callable[[], object]) -> None:
    """Fails instead of hanging for ever."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "the engine hangs"


def wait_until_ready(engine: WorkerProcesses) -> None:
    while engine._starting:
        engine._hear(min(engine._starting))


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "echoing_host.py").write_text(textwrap.dedent(ECHO))
    return folder


@pytest.fixture(scope="module")
def open_engine(hosts: Path) -> Iterator[Callable[..., WorkerProcesses]]:
    """Engines over echoing hosts, in a module that worker processes can import."""
    opened: list[WorkerProcesses] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(hosts)
        echoing_host = importlib.import_module("echoing_host")

        def opener(
            workers: int, specification: bytes = b"", sizes: tuple[int, ...] = (1,) * 6, here: bytes | None = None
        ) -> WorkerProcesses:
            meanwhile = None if here is None else echoing_host.build(here)
            opened.append(WorkerProcesses(echoing_host.build, [specification] * workers, sizes, meanwhile))
            return opened[-1]

        yield opener
    for engine in opened:
        engine.close()


@pytest.fixture(scope="module")
def pair(open_engine: Callable[..., WorkerProcesses]) -> WorkerProcesses:
    engine = open_engine(2, b"hello ")
    wait_until_ready(engine)
    return engine


def test_a_worker_whose_parent_lost_interest_before_it_was_ready_ends_quietly(
    open_engine: Callable[..., WorkerProcesses],
) -> None:
    engine = open_engine(1)
    engine._pipes[0].close()  # a process takes longer to start than this
    engine._processes[0].join(timeout=60)
    assert engine._processes[0].exitcode == 0


def test_answers_wait_for_their_tickets_and_tell_where_the_state_is(pair: WorkerProcesses) -> None:
    tickets = [pair.submit(task(client, payload=b"%d" % client, file=f"file {client}")) for client in range(4)]
    outcomes = [pair.outcome(ticket, None) for ticket in reversed(tickets)]
    assert [one.result.payload for one in outcomes] == [b"hello 3", b"hello 2", b"hello 1", b"hello 0"]
    assert [one.location.file for one in outcomes if one.location] == ["file 3+", "file 2+", "file 1+", "file 0+"]


def test_the_client_with_most_data_is_first(open_engine: Callable[..., WorkerProcesses]) -> None:
    engine = open_engine(1, sizes=(5, 20, 20, 100, 7))
    wait_until_ready(engine)
    tickets = {client: engine.submit(task(client)) for client in range(5)}
    when = {client: int(location(engine.outcome(ticket, None)).digest) for client, ticket in tickets.items()}
    assert sorted(when, key=lambda client: when[client]) == [3, 1, 2, 4, 0]


def test_until_a_worker_is_ready_this_process_answers_for_the_small_clients(
    open_engine: Callable[..., WorkerProcesses],
) -> None:
    engine = open_engine(1, b"there ", sizes=(5, 20, 3, 100), here=b"here ")
    tickets = [engine.submit(task(client)) for client in range(4)]
    assert engine.outcome(tickets[0], None).result.payload == b"here "  # a process takes longer to start than this
    assert set(engine._waiting) == {tickets[1], tickets[3]}
    wait_until_ready(engine)
    answers = [engine.outcome(ticket, None).result.payload for ticket in tickets[1:]]
    assert answers == [b"there ", b"here ", b"there "]


def test_an_idle_worker_takes_what_the_other_has_no_time_for(pair: WorkerProcesses) -> None:
    slow = pair.submit(task(0, "nap"))
    quick = [pair.submit(task(client % 4)) for client in range(1, 8)]
    napper, *others = [location(pair.outcome(ticket, None)).changes for ticket in (slow, *quick)]
    assert len(set(others)) == 1  # all by the one that did not nap
    assert napper not in others


def test_messages_larger_than_a_pipe_do_not_block(pair: WorkerProcesses) -> None:
    outcomes: list[Outcome] = []

    def exchange() -> None:
        payloads = [os.urandom(4 * MEGABYTE) for _ in range(8)]
        tickets = [pair.submit(task(number % 4, payload=data)) for number, data in enumerate(payloads)]
        outcomes.extend(pair.outcome(ticket, None) for ticket in tickets)
        assert [one.result.payload for one in outcomes] == [b"hello " + data for data in payloads]

    within(60, exchange)
    assert len(outcomes) == 8


def test_what_nobody_waits_for_any_more_is_not_done_or_thrown_away(pair: WorkerProcesses) -> None:
    first, *_ = [pair.submit(task(client, payload=bytes(MEGABYTE))) for client in range(4)]
    pair.outcome(first, None)  # by now others are under way
    pair.forget()
    assert not pair._outcomes
    assert not pair._waiting
    assert pair._busy == [None, None]  # nobody writes a state any more
    assert pair.outcome(pair.submit(task(0, payload=b"again")), None).result.payload == b"hello again"


def test_a_worker_that_ends_is_told_with_its_exit_code(pair: WorkerProcesses) -> None:
    """The last test of this engine: it kills a worker."""
    ticket = pair.submit(task(0, "die"))
    with pytest.raises(RunError, match=r"ended unexpectedly \(exit code 7\).*fewer --workers.*--resume"):
        pair.outcome(ticket, None)


def test_a_worker_that_cannot_start_says_why(open_engine: Callable[..., WorkerProcesses]) -> None:
    engine = open_engine(1, b"refuse")
    with pytest.raises(RunError, match="A worker could not start: there is no such thing"):
        engine.outcome(engine.submit(task(0)), None)


def test_closing_does_not_wait_for_a_busy_worker(open_engine: Callable[..., WorkerProcesses]) -> None:
    engine = open_engine(1)
    wait_until_ready(engine)
    (process,) = engine._processes
    engine.submit(task(0, "sleep"))
    engine._feed()
    within(60, engine.close)
    assert process.exitcode == -signal.SIGKILL


LATE = r"Round 1, client 0: echo took longer than deadline = 0\.5 seconds\. .*committed.*--resume"


@pytest.mark.parametrize("size", [1, 4 * MEGABYTE], ids=["small", "larger than a pipe"])
def test_a_stopped_worker_is_found_by_the_deadline_and_ended(
    open_engine: Callable[..., WorkerProcesses], size: int
) -> None:
    engine = open_engine(1)
    wait_until_ready(engine)
    (process,) = engine._processes
    os.kill(process.pid, signal.SIGSTOP)  # type: ignore[arg-type]

    def ask() -> None:
        with pytest.raises(RunError, match=LATE):
            engine.outcome(engine.submit(task(0, payload=bytes(size))), 0.5)

    within(60, ask)
    within(60, engine.close)
    assert process.exitcode == -signal.SIGKILL


def test_a_worker_that_hangs_at_what_nobody_waits_for_is_found_too(open_engine: Callable[..., WorkerProcesses]) -> None:
    engine = open_engine(2)
    wait_until_ready(engine)
    first = engine.submit(task(0))
    engine.submit(task(1, "sleep"))
    engine.outcome(first, 3.0)

    def forget() -> None:
        with pytest.raises(RunError, match=r"client 1: sleep took longer than deadline"):
            engine.forget()

    within(60, forget)


def test_a_client_has_its_time_from_when_its_turn_comes(open_engine: Callable[..., WorkerProcesses]) -> None:
    engine = open_engine(1)
    wait_until_ready(engine)
    tickets = [engine.submit(task(0, "nap")) for _ in range(18)]
    for ticket in reversed(tickets):
        engine.outcome(ticket, 3.0)  # the last one's turn comes after 3.4 s


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
    deadline = time.monotonic() + 60
    while is_alive(worker):
        assert time.monotonic() < deadline, "the worker outlives its parent"
        time.sleep(0.05)
