"""What an engine is to the rest: it takes requests to clients, and it owns what the clients keep."""

from dataclasses import dataclass
from typing import Any, Protocol

from refprotofl.errors import DataError, GuardError, InputError, RunError

# The user's input, a damaged store, a full disk, a broken promise: not a matter of one client losing its turn.
FATAL = {kind.__name__: kind for kind in (InputError, DataError, RunError, GuardError)}

Record = dict[str, Any]  # what finds a client's state again: plain JSON, the engine's own but for its "digest"


@dataclass(frozen=True)
class Request:
    client: int
    verb: str
    round: int
    payload: bytes = b""
    keeps: bool = True  # False: the client's state stays as it was before


@dataclass(frozen=True)
class Result:
    """An answer, or why there is none. `fatal` names an error that stops the run."""

    payload: bytes = b""
    error: str | None = None
    trace: str = ""
    fatal: str | None = None


class Engine(Protocol):
    """Where the clients are asked. Answers wait, encoded, until their result is called for.

    A client's state moves on when its result is taken; a request whose result nobody takes leaves no trace.
    """

    def submit(self, request: Request) -> int:
        """A ticket for the result."""

    def result(self, ticket: int, deadline: float | None) -> Result:
        """`deadline`: the seconds that a client has for its answer, None for as long as it takes."""

    def discard(self, client: int) -> None:
        """The client is out of the round: its state goes back to its last committed one."""

    def settle(self, round: int) -> dict[int, Record]:
        """The records of the clients whose state moved since the last committed round, safe on disk by now.

        Results that were not called for are forgotten.
        """

    def committed(self, round: int) -> None:
        """The round exists: what earlier ones left may go. Until then all that they need must stay."""

    def close(self) -> None: ...
