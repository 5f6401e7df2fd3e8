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
            if task.work == "die":
                os._exit(7)
            if task.work == "sleep":
                time.sleep(60)
            if task.work == "nap":
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
    engine._handle_message(0)
    outcomes = engine.run([Task(0, 1, Location(), Request(0, "sleep", 1))], None, None)
    threading.Thread(target=next, args=(outcomes,), daemon=True).start()
    print(engine._processes[0].pid, flush=True)
    time.sleep(60)
"""


def task(client: int, verb: str = "echo", payload: bytes = b"", file: str = "") -> Task:
    return Task(client, 1, Location(file), Request(client, verb, 1, payload))


def outcomes_of(engine: WorkerProcesses, *tasks: Task, deadline: float | None = None) -> Iterator[Outcome]:
    return (outcome for _, outcome in engine.run(tasks, None, deadline))


def waiting(engine: WorkerProcesses) -> list[int]:
    """The clients whose tasks no worker has yet."""
    return [job.task.client for job in engine._waiting]


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
        engine._handle_message(min(engine._starting))


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


def test_outcomes_come_in_order_and_say_where_the_state_is(pair: WorkerProcesses) -> None:
    tasks = [task(client, payload=b"%d" % client, file=f"file {client}") for client in (3, 0, 2, 1)]
    outcomes = list(outcomes_of(pair, *tasks))
    assert [one.result.payload for one in outcomes] == [b"hello 3", b"hello 0", b"hello 2", b"hello 1"]
    assert [one.location.file for one in outcomes if one.location] == ["file 3+", "file 0+", "file 2+", "file 1+"]


def test_the_client_with_most_data_is_first(open_engine: Callable[..., WorkerProcesses]) -> None:
    engine = open_engine(1, sizes=(5, 20, 20, 100, 7))
    wait_until_ready(engine)
    when = [int(location(one).digest) for one in outcomes_of(engine, *map(task, range(5)))]
    assert sorted(range(5), key=when.__getitem__) == [3, 1, 2, 4, 0]


def test_until_a_worker_is_ready_this_process_answers_for_the_small_clients(
    open_engine: Callable[..., WorkerProcesses],
) -> None:
    engine = open_engine(1, b"there ", sizes=(5, 20, 3, 100), here=b"here ")
    outcomes = outcomes_of(engine, *map(task, range(4)))
    assert next(outcomes).result.payload == b"here "  # a process takes longer to start than this
    assert waiting(engine) == [1, 3]
    wait_until_ready(engine)
    assert [one.result.payload for one in outcomes] == [b"there ", b"here ", b"there "]


def test_an_idle_worker_takes_what_the_other_has_no_time_for(pair: WorkerProcesses) -> None:
    tasks = [task(0, "nap"), *(task(client % 4) for client in range(1, 8))]
    napper, *others = [location(one).changes for one in outcomes_of(pair, *tasks)]
    assert len(set(others)) == 1  # all by the one that did not nap
    assert napper not in others


def test_messages_larger_than_a_pipe_do_not_block(pair: WorkerProcesses) -> None:
    outcomes: list[Outcome] = []

    def exchange() -> None:
        payloads = [os.urandom(4 * MEGABYTE) for _ in range(8)]
        outcomes.extend(outcomes_of(pair, *(task(number % 4, payload=data) for number, data in enumerate(payloads))))
        assert [one.result.payload for one in outcomes] == [b"hello " + data for data in payloads]

    within(60, exchange)
    assert len(outcomes) == 8


def test_no_more_tasks_are_taken_than_may_be_under_way(pair: WorkerProcesses) -> None:
    taken: list[int] = []

    def tasks() -> Iterator[Task]:
        for client in range(6):
            taken.append(client)
            yield task(client)

    outcomes = pair.run(tasks(), 2, None)
    for number in range(6):
        next(outcomes)
        assert len(taken) == min(6, number + 2)


def test_a_client_may_be_asked_once_more_while_others_are_under_way(pair: WorkerProcesses) -> None:
    seen = []
    for number, outcome in enumerate(outcomes_of(pair, *map(task, range(4)))):
        again = outcomes_of(pair, task(number, payload=b"again"))
        seen += [outcome.result.payload, next(again).result.payload]
    assert seen == [b"hello ", b"hello again"] * 4


def test_tasks_without_a_taken_outcome_are_not_done_or_thrown_away(pair: WorkerProcesses) -> None:
    outcomes = outcomes_of(pair, *(task(client, payload=bytes(MEGABYTE)) for client in range(6)))
    next(outcomes)  # by now others are under way
    pair.forget(5)
    assert 5 not in waiting(pair)
    assert waiting(pair) or any(pair._busy)
    pair.forget()
    assert waiting(pair) == []
    assert pair._busy == [None, None]  # no worker writes a state any more
    assert next(outcomes_of(pair, task(0, payload=b"again"))).result.payload == b"hello again"


def test_a_worker_that_ends_is_reported_with_its_exit_code(pair: WorkerProcesses) -> None:
    """The last test of this engine: it kills a worker."""
    with pytest.raises(RunError, match=r"ended unexpectedly \(exit code 7\).*fewer --workers.*--resume"):
        next(outcomes_of(pair, task(0, "die")))


def test_a_worker_that_cannot_start_says_why(open_engine: Callable[..., WorkerProcesses]) -> None:
    engine = open_engine(1, b"refuse")
    with pytest.raises(RunError, match="A worker could not start: there is no such thing"):
        next(outcomes_of(engine, task(0)))


def test_closing_does_not_wait_for_a_busy_worker(open_engine: Callable[..., WorkerProcesses]) -> None:
    engine = open_engine(1)
    wait_until_ready(engine)
    (process,) = engine._processes
    engine._queue(task(0, "sleep"))
    engine._feed()
    within(60, engine.close)
    assert process.exitcode == -signal.SIGKILL


LATE = r"Round 1, client 0: echo took longer than deadline = 0\.5 seconds\. Committed rounds are kept.*--resume"


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
            next(outcomes_of(engine, task(0, payload=bytes(size)), deadline=0.5))

    within(60, ask)
    within(60, engine.close)
    assert process.exitcode == -signal.SIGKILL


def test_a_worker_that_hangs_at_a_forgotten_task_is_found_too(open_engine: Callable[..., WorkerProcesses]) -> None:
    engine = open_engine(2)
    wait_until_ready(engine)
    next(outcomes_of(engine, task(0), task(1, "sleep"), deadline=3.0))

    def forget() -> None:
        with pytest.raises(RunError, match=r"client 1: sleep took longer than deadline"):
            engine.forget()

    within(60, forget)


def test_a_client_has_its_time_from_when_its_turn_comes(open_engine: Callable[..., WorkerProcesses]) -> None:
    engine = open_engine(1)
    wait_until_ready(engine)
    naps = [task(0, "nap") for _ in range(18)]
    assert len(list(outcomes_of(engine, *naps, deadline=3.0))) == 18  # the last one's turn comes after 3.4 s


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
