"""The place where clients live: it decodes a request, lets the client answer and saves its private state.

Who does the work of the clients on this machine, and how long it may take.

Clients in this very process, one after the other.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from refprotofl.core.errors import DataError, GuardError, InputError, MachineError, PrivacyError, RefProtoFLError
from refprotofl.core.state import State
from refprotofl.engines.engine import STOPS, Code, Request, Result
from refprotofl.engines.local.store import ClientStore, Location
from refprotofl.methods.base.client import ClientContext
from refprotofl.methods.base.schema import Refused
from refprotofl.methods.base.training import Diverged
from refprotofl.wire import Message, decode, encode

Failed = Callable[[int, int, str, Exception], None]  # client, round, verb, what happened


@dataclass(frozen=True)
class Task:
    """Work for a place: a request to a client; without one, the client's state is to be brought into one file."""

    client: int
    round: int
    location: Location
    request: Request | None = None

    @property
    def deed(self) -> str:
        return "writing its state" if self.request is None else self.request.verb


@dataclass(frozen=True)
class Outcome:
    """What became of a task, and where the client's state lies now, if it moved."""

    result: Result
    location: Location | None = None


class Answering(Protocol):
    """What lives in a place: a method's client, or who plays one."""

    @property
    def state(self) -> State: ...

    def answer(self, verb: str, round: int, message: Message) -> Message: ...


class ClientHost:
    """`failed` is told of a client's failures; what they say stays on this machine."""

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
        with suppress(Exception):  # what it says of itself may be as broken as it is
            self._failed(task.client, task.round, task.deed, problem)
        return Outcome(Result(code=code_of(problem)))


def code_of(problem: Exception) -> Code:
    """The first that fits."""
    kinds: dict[type[Exception], Code] = {
        Diverged: "diverged",
        Refused: "refused",
        GuardError: "guard",
        InputError: "input",
        DataError: "data",
    }
    return next((code for kind, code in kinds.items() if isinstance(problem, kind)), "failed")


class Executor(Protocol):
    """Does tasks in any order; outcomes wait until they are called for."""

    def submit(self, task: Task) -> int:
        """A ticket for the outcome."""

    def outcome(self, ticket: int, deadline: float | None) -> Outcome:
        """MachineError if a client has been at its task for more than `deadline` seconds."""

    def forget(self) -> None:
        """Nobody will call for the outcomes that were not called for yet; when this returns, nobody is at them."""

    def close(self) -> None: ...


def too_late(task: Task, deadline: float) -> MachineError:
    """It stops the run: if it cost the client its turn, the result would depend on how fast the machine is."""
    return MachineError(
        f"Round {task.round}, client {task.client}: {task.deed} took longer than deadline = {deadline:g} seconds. "
        "Rounds committed so far are kept: go on with --resume."
    )


class InProcess:
    """A deadline is looked at when the answer is there: nobody else could interrupt the client."""

    def __init__(self, host: ClientHost) -> None:
        self._host = host
        self._tasks: dict[int, Task] = {}
        self._issued = 0

    def submit(self, task: Task) -> int:
        self._issued += 1
        self._tasks[self._issued] = task
        return self._issued

    def outcome(self, ticket: int, deadline: float | None) -> Outcome:
        return do_in_time(self._host, self._tasks.pop(ticket), deadline)

    def forget(self) -> None:
        self._tasks.clear()

    def close(self) -> None:
        self._tasks.clear()


def do_in_time(host: ClientHost, task: Task, deadline: float | None) -> Outcome:
    begin = time.monotonic()
    outcome = host.do(task)
    if deadline is not None and time.monotonic() - begin > deadline:
        raise too_late(task, deadline)
    return outcome
