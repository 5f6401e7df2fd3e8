"""What an engine is to the rest: it takes requests to clients, and it owns what the clients keep."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from refprotofl.core.errors import DataError, GuardError, InputError, MachineError, PrivacyError, RefProtoFLError

# Why a client has no answer. Only this crosses: what its code says of it may hold data, and stays where it happened.
Code = Literal["refused", "diverged", "guard", "input", "data", "machine", "late", "absent", "failed"]
CODES: tuple[Code, ...] = get_args(Code)
MEANINGS: dict[Code, str] = {
    "refused": "it refused what it was asked",
    "diverged": "its training diverged; a smaller train.lr may help",
    "guard": "what the experiment promises did not happen in its training",
    "input": "it cannot work with this experiment",
    "data": "its data are missing or damaged",
    "machine": "its machine has no room left on disk or in memory",
    "late": "it did not answer in time",
    "absent": "its node cannot be reached",
    "failed": "its code failed",
}
# What the run ends with if it is the reason of all clients.
KINDS: dict[str, type[RefProtoFLError]] = {"input": InputError, "data": DataError, "guard": GuardError}
# What stops the run wherever it happens: an engine's own trouble, which is no client's fault (a damaged store, a full
# disk, no memory), and an epsilon that would be false.
STOPS = {kind.__name__: kind for kind in (DataError, MachineError, PrivacyError)}

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
    """An answer, or why there is none: a client's failure costs its turn, trouble of the engine stops the run."""

    payload: bytes = b""
    code: Code | None = None
    trouble: str | None = None
    kind: str = ""  # of the trouble: a name in STOPS


@dataclass(frozen=True)
class EngineInfo:
    """What an engine says of itself: those of this machine, unless told otherwise."""

    max_in_flight: int | None = 64  # requests that it has at a time: enough to choose from; None for all of a phase
    resume_hint: str = "go on with --resume"  # how a run that stopped is gone on with
    logs: str = "The clients' logs tell more: those of this machine are in the run folder, under logs."


class Engine(Protocol):
    """Where the clients are asked. Answers wait, encoded, until their result is called for.

    A client's state moves on when its result is taken; a request whose result nobody takes leaves no trace.
    """

    info: EngineInfo

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

    def committed(self, round: int, oldest: int) -> None:
        """The round exists: what only rounds before `oldest` need may go. Until then all that they need must stay."""

    def explain(self, client: int) -> str:
        """What is known here of its last failure, for people and never on record; nothing where it lives elsewhere."""

    def close(self) -> None: ...
