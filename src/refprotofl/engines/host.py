"""The place where clients live: it decodes a request, lets the client answer and keeps its private state."""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from refprotofl.errors import DataError, GuardError, InputError, RunError
from refprotofl.methods.base import Client, Seat
from refprotofl.state import State
from refprotofl.wire import decode, encode

Records = dict[int, dict[str, Any]]  # of each client whose state was written: file, hash and digest

# The user's input, a damaged store, a full disk, a broken promise: not a matter of one client losing its turn.
FATAL = {kind.__name__: kind for kind in (InputError, DataError, RunError, GuardError)}


@dataclass(frozen=True)
class Task:
    client: int
    verb: str
    round: int
    payload: bytes


@dataclass(frozen=True)
class Result:
    """An answer, or why there is none; `fatal` names an error that stops the run."""

    payload: bytes = b""
    error: str | None = None
    trace: str = ""
    fatal: str | None = None
    seconds: float = 0.0


class Store(Protocol):
    """The clients' private states."""

    def load(self, client: int) -> State: ...

    def keep(self, client: int, state: State) -> None: ...

    def commit(self, round: int) -> Records:
        """Writes what changed since the last commit."""


class Engine(Protocol):
    """Where the clients are asked. Answers wait, encoded, until their result is called for."""

    def submit(self, task: Task) -> int:
        """A ticket for the result."""

    def result(self, ticket: int) -> Result: ...

    def commit(self, round: int) -> Records: ...

    def close(self) -> None: ...


class ClientHost:
    def __init__(self, client_class: type[Client], seat: Callable[[int], Seat], store: Store) -> None:
        self._client_class = client_class
        self._seat = seat
        self._store = store

    def answer(self, task: Task) -> Result:
        started = time.perf_counter()
        try:
            client = self._client_class(self._seat(task.client), dict(self._store.load(task.client)))
            payload = encode(client.answer(task.verb, task.round, decode(task.payload)))
        except Exception as problem:
            reason = str(problem) or type(problem).__name__
            kind = type(problem).__name__
            return Result(error=reason, trace=traceback.format_exc(), fatal=kind if kind in FATAL else None)
        if task.verb != "evaluate":
            self._store.keep(task.client, client.state)
        return Result(payload, seconds=time.perf_counter() - started)

    def commit(self, round: int) -> Records:
        return self._store.commit(round)
