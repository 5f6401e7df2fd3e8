"""The place where clients live: it decodes a request, lets the client answer and saves its private state."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from refprotofl.basics.plugins import blame
from refprotofl.basics.state import State
from refprotofl.engines.engine import FATAL, Request, Result
from refprotofl.engines.local.store import ClientStore, Location
from refprotofl.errors import RefProtoFLError
from refprotofl.methods.core.client import Seat
from refprotofl.wire import Message, decode, encode


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
    def __init__(
        self, make: Callable[[Seat, State], Answering], seat: Callable[[int], Seat], store: ClientStore
    ) -> None:
        self._make = make
        self._seat = seat
        self._store = store

    def do(self, task: Task) -> Outcome:
        try:
            if task.request is None:
                return Outcome(Result(), self._store.merge(task.client, task.round, task.location))
            return self._answer(task.request, task.location)
        except Exception as problem:
            kind = type(problem).__name__
            return Outcome(Result(b"", _reason(problem), traceback.format_exc(), kind if kind in FATAL else None))

    def _answer(self, request: Request, location: Location) -> Outcome:
        number, round = request.client, request.round
        loaded = self._store.load(number, location)
        client = self._make(self._seat(number), dict(loaded.state))
        result = Result(encode(client.answer(request.verb, round, decode(request.payload))))
        if not request.keeps:
            return Outcome(result)
        return Outcome(result, self._store.save(number, round, client.state, loaded, location))


def _reason(problem: Exception) -> str:
    """With the line of the user's own code, unless it refused on purpose."""
    words = str(problem) or type(problem).__name__
    theirs = None if isinstance(problem, RefProtoFLError) else blame(problem)
    return words if theirs is None else f"{words} ({type(problem).__name__} in {theirs.filename}, line {theirs.lineno})"
