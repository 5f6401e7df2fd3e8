"""The host of clients: it decodes a request, lets the client answer and saves its private state.

Executors give it its tasks: `InProcess` here, `WorkerProcesses` in workers.py.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from refprotofl.core import DataError, GuardError, InputError, MachineError, PrivacyError, RefProtoFLError, State
from refprotofl.engines.engine import STOPS, Code, Request, Result, start_ahead
from refprotofl.engines.local.store import ClientStore, Location
from refprotofl.methods import ClientContext, Diverged, Refused
from refprotofl.wire import Message, decode, encode

Failed = Callable[[int, int, str, Exception], None]  # client, round, verb, error


@dataclass(frozen=True)
class Task:
    """Work for a host: a request to a client; without one, the client's state is written into one file."""

    client: int
    round: int
    location: Location
    request: Request | None = None

    @property
    def payload(self) -> bytes:
        return b"" if self.request is None else self.request.payload

    @property
    def work(self) -> str:
        """The name of the task in messages."""
        return "writing its state" if self.request is None else self.request.verb


@dataclass(frozen=True)
class Outcome:
    """The result of a task, and the location of the client's state if it changed."""

    result: Result
    location: Location | None = None


class Answering(Protocol):
    """A client as its host sees it: a method's client, or a replacement."""

    @property
    def state(self) -> State: ...

    def answer(self, verb: str, round: int, message: Message) -> Message: ...


class ClientHost:
    """Makes a client for each task and lets it answer. `failed` logs a client's failures on this machine."""

    def __init__(
        self,
        make: Callable[[ClientContext, State], Answering],
        context: Callable[[int], ClientContext],
        store: ClientStore,
        failed: Failed | None = None,
    ) -> None:
        self._make = make
        self._context = context
        self.store = store
        self._failed = failed or (lambda client, round, verb, problem: None)

    def do(self, task: Task) -> Outcome:
        try:
            if task.request is None:
                return Outcome(Result(), self.store.merge(task.client, task.round, task.location))
            return self._answer(task.request, task.location)
        except MemoryError:
            trouble = "there is not enough memory"
            return Outcome(Result(trouble=trouble, kind="MachineError"))
        except RefProtoFLError as problem:
            kind = next((name for name, stop in STOPS.items() if isinstance(problem, stop)), "MachineError")
            return Outcome(Result(trouble=str(problem), kind=kind))
        except Exception as problem:
            return self._failure(task, problem)

    def _answer(self, request: Request, location: Location) -> Outcome:
        number, round = request.client, request.round
        loaded, asked = self.store.load(number, location), decode(request.payload)
        try:
            context = self._context(number)
            client = self._make(context, dict(loaded.state))
            result = Result(encode(client.answer(request.verb, round, asked), context.experiment.value_code))
        except (MachineError, PrivacyError, MemoryError):
            raise
        except Exception as problem:
            return self._failure(Task(number, round, location, request), problem)
        if not request.keeps:
            return Outcome(result)
        return Outcome(result, self.store.save(number, round, client.state, loaded, location))

    def _failure(self, task: Task, problem: Exception) -> Outcome:
        with suppress(Exception):  # the error's own text may be broken, too
            self._failed(task.client, task.round, task.work, problem)
        return Outcome(Result(code=code_of(problem)))


def code_of(problem: Exception) -> Code:
    """Return the code of an error: the first that fits."""
    kinds: dict[type[Exception], Code] = {
        Diverged: "diverged",
        Refused: "refused",
        GuardError: "guard",
        InputError: "input",
        DataError: "data",
    }
    return next((code for kind, code in kinds.items() if isinstance(problem, kind)), "failed")


class Executor(Protocol):
    """Does the tasks of a `LocalEngine`: in this process, in worker processes or elsewhere on this machine."""

    def run(self, tasks: Iterable[Task], most: int | None, deadline: float | None) -> Iterator[tuple[Task, Outcome]]:
        """Yield each task with its outcome, in order; at most `most` are under way.

        MachineError if a client has been at its task for more than `deadline` seconds.
        """

    def forget(self, client: int | None = None) -> None:
        """Forget the tasks of a client, or all; no process works on them any more when this returns."""

    def close(self) -> None: ...


class InProcess:
    """Clients in this process, one after the other.

    The deadline is checked when the answer is there: nothing else could interrupt the client.
    """

    def __init__(self, host: ClientHost) -> None:
        self._host = host

    def run(self, tasks: Iterable[Task], most: int | None, deadline: float | None) -> Iterator[tuple[Task, Outcome]]:
        for task in start_ahead(tasks, lambda task: task, most):
            yield task, do_in_time(self._host, task, deadline)

    def forget(self, client: int | None = None) -> None:
        """Nothing: a task is done when its outcome is asked for."""

    def close(self) -> None:
        """Nothing: no process was started."""


def do_in_time(host: ClientHost, task: Task, deadline: float | None) -> Outcome:
    begin = time.monotonic()
    outcome = host.do(task)
    if deadline is not None and time.monotonic() - begin > deadline:
        raise too_late(task, deadline)
    return outcome


def too_late(task: Task, deadline: float) -> MachineError:
    """Return the error that stops the run: if it cost the turn, results would depend on how fast the machine is."""
    return MachineError(
        f"Round {task.round}, client {task.client}: {task.work} took longer than deadline = {deadline:g} seconds. "
        "Committed rounds are kept: resume with --resume."
    )
