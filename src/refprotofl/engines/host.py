"""The place where clients live: it decodes a request, lets the client answer and keeps its private state."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from refprotofl.basics.state import Held, Kept, State
from refprotofl.errors import DataError, GuardError, InputError, RunError
from refprotofl.methods.core.client import Client, Seat
from refprotofl.wire import decode, encode

# The user's input, a damaged store, a full disk, a broken promise: not a matter of one client losing its turn.
FATAL = {kind.__name__: kind for kind in (InputError, DataError, RunError, GuardError)}

SETTLE = "settle"  # no request to a client, but to its place: bring its state into one file


@dataclass(frozen=True)
class Task:
    """A request to a client, and where its state lies."""

    client: int
    verb: str
    round: int
    payload: bytes = b""
    kept: Kept = field(default_factory=Kept)


@dataclass(frozen=True)
class Result:
    """An answer and where the client's state lies now, or why there is none.

    `fatal` names an error that stops the run.
    """

    payload: bytes = b""
    kept: Kept | None = None
    error: str | None = None
    trace: str = ""
    fatal: str | None = None


class Store(Protocol):
    """The clients' private states."""

    def load(self, client: int, kept: Kept) -> Held: ...

    def keep(self, client: int, round: int, state: State, held: Held, kept: Kept) -> Kept: ...

    def settle(self, client: int, round: int, kept: Kept) -> Kept: ...


class Engine(Protocol):
    """Where the clients are asked. Answers wait, encoded, until their result is called for."""

    def submit(self, task: Task) -> int:
        """A ticket for the result."""

    def result(self, ticket: int) -> Result: ...

    def forget(self) -> None:
        """Nobody will call for the results that were not called for yet."""

    def close(self) -> None: ...


class ClientHost:
    def __init__(self, client_class: type[Client], seat: Callable[[int], Seat], store: Store) -> None:
        self._client_class = client_class
        self._seat = seat
        self._store = store

    def answer(self, task: Task) -> Result:
        try:
            if task.verb == SETTLE:
                return Result(kept=self._store.settle(task.client, task.round, task.kept))
            return self._ask(task)
        except Exception as problem:
            reason = str(problem) or type(problem).__name__
            kind = type(problem).__name__
            return Result(error=reason, trace=traceback.format_exc(), fatal=kind if kind in FATAL else None)

    def _ask(self, task: Task) -> Result:
        held = self._store.load(task.client, task.kept)
        client = self._client_class(self._seat(task.client), dict(held.state))
        payload = encode(client.answer(task.verb, task.round, decode(task.payload)))
        if task.verb == "evaluate":
            return Result(payload)
        return Result(payload, self._store.keep(task.client, task.round, client.state, held, task.kept))
