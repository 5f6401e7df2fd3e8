"""The seam between the round loop and the clients: an engine takes requests and returns results.

The loop knows nothing else about where clients are: in this process, in worker processes, on nodes of a deployment.

| method | when | what the engine does |
|---|---|---|
| `map` | in every phase of a round | asks clients, and yields a result for each request, in the order of the requests |
| `discard` | a client is out of the round | returns the client to its last committed state |
| `settle` | a round is over | makes the states that changed safe, and returns a record of each |
| `committed` | the round is on record | deletes states that no kept round needs |
| `explain` | a run stops | returns what is known here about a client's failure |
| `close` | the run ends | ends its processes and connections |

`start_ahead` does for `map` what all engines have in common: the order, and the bound on requests under way.
A new transport between a server and its devices needs less than an engine: see `Transport` in `deploy/transport.py`.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, get_args

from refprotofl.core import DataError, GuardError, InputError, MachineError, PrivacyError, RefProtoFLError

# Why a client has no answer. Only this crosses: the words of its error may hold data, and stay where it happened.
Code = Literal["refused", "diverged", "guard", "input", "data", "machine", "late", "absent", "spare", "failed"]
CODES: tuple[Code, ...] = get_args(Code)
MEANINGS: dict[Code, str] = {
    "refused": "it refused what it was asked",
    "diverged": "its training diverged; a smaller train.lr may help",
    "guard": "what the experiment promises did not happen in its training",
    "input": "it cannot work with this experiment",
    "data": "its data are missing or damaged",
    "machine": "its machine has no space left on disk or in memory",
    "late": "it did not answer in time",
    "absent": "its node cannot be reached",
    "spare": "enough other nodes had answered",
    "failed": "its code failed",
}
# The error that a run ends with if all clients have the same code.
KINDS: dict[str, type[RefProtoFLError]] = {"input": InputError, "data": DataError, "guard": GuardError}
# The errors that stop the run wherever they happen: an engine's own trouble, which is no client's fault (a damaged
# store, a full disk, no memory), and an epsilon that would be false.
STOPS = {kind.__name__: kind for kind in (DataError, MachineError, PrivacyError)}

Record = dict[str, Any]  # finds a client's state again: plain JSON, the engine's own except for its "digest"

MAX_IN_FLIGHT = 64  # requests under way in the engine of this machine: enough for the longest-first order
MAX_DIFFERENT = 64  # payloads under way that are not the same for all: each is in memory until it is answered


@dataclass(frozen=True)
class Request:
    client: int
    verb: str
    round: int
    payload: bytes = b""
    keeps: bool = True  # False: the client's state stays as it was before
    enough: int = 0  # answers in its phase after which it need not be waited for; 0: it is always waited for


@dataclass(frozen=True)
class Result:
    """An answer, or why there is none: a client's failure costs its turn, trouble of the engine stops the run."""

    payload: bytes = b""
    code: Code | None = None
    trouble: str | None = None
    kind: str = ""  # of the trouble: a name in STOPS


@dataclass(frozen=True)
class EngineInfo:
    """The facts that differ between engines. The defaults are those of this machine's engine."""

    max_in_flight: int | None = MAX_IN_FLIGHT  # requests that `map` has under way at a time; None: all of them
    resume_hint: str = "resume with --resume"  # how to resume a run that stopped
    logs: str = "The clients' logs say more: for clients on this machine they are in the run folder, under logs."


class Engine(Protocol):
    """Runs clients and owns the state that they keep between rounds."""

    info: EngineInfo

    def map(self, requests: Iterable[Request], deadline: float | None) -> Iterator[Result]:
        """Yield the result of each request, in order.

        - Lazy: at most `info.max_in_flight` requests are taken ahead of their results.
        - Results that come early wait, encoded, for those before them.
        - `deadline`: the seconds that a client has for its answer; None: no limit.
        - A client's state changes when its result is yielded. A request without a yielded result leaves no trace.
        - While one `map` is under way, another may be started, to ask a client once more.
        """

    def discard(self, client: int) -> None:
        """Return a client to its last committed state; requests to it that are under way are forgotten."""

    def settle(self, round: int) -> dict[int, Record]:
        """Return the records of the clients whose state changed since the last committed round, now safe on disk.

        Requests that are under way are forgotten.
        """

    def committed(self, round: int, oldest: int) -> None:
        """Delete what only rounds before `oldest` need: `round` is on record now. Until then all of it must stay."""

    def explain(self, client: int) -> str:
        """Return what is known here about a client's last failure, for people and never on record; or nothing."""

    def close(self) -> None:
        """End what the engine started."""


class HasPayload(Protocol):
    @property
    def payload(self) -> bytes: ...


Asked = TypeVar("Asked", bound=HasPayload)
Started = TypeVar("Started")


def start_ahead(requests: Iterable[Asked], start: Callable[[Asked], Started], most: int | None) -> Iterator[Started]:
    """Start requests before their turn, and yield what `start` returned for each, in order.

    At most `most` are under way, the one that was yielded last included, and few payloads that differ.
    """
    source, under_way, payloads = iter(requests), deque[tuple[bytes, Started]](), Counter[int]()
    while True:
        while (most is None or len(under_way) < most) and len(payloads) < MAX_DIFFERENT:
            request = next(source, None)
            if request is None:
                break
            under_way.append((request.payload, start(request)))
            payloads[id(request.payload)] += 1
        if not under_way:
            return
        payload, started = under_way.popleft()
        payloads[id(payload)] -= 1
        if not payloads[id(payload)]:
            del payloads[id(payload)]
        yield started
