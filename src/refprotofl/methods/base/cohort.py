"""The clients of one round as the server sees them: asked through an engine, every byte on record."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from refprotofl.core import ClientsFailed, GuardError, RunError, digest_state, digest_value, for_terminal
from refprotofl.engines import CODES, MEANINGS, Engine, Request, Result
from refprotofl.engines.engine import KINDS, STOPS
from refprotofl.wire import Counted, Direction, Kind, Ledger, Message, Purpose, Sparse, WireError, decode, encode
from refprotofl.wire.values import ValueCode

LOST_AT_RANDOM = "lost (dropout)"
RECENT = 8  # different requests of a phase that are remembered in their encoded form

Digests = dict[str, dict[str, dict[int, dict[str, str]]]]  # phase, direction, client, field
Norms = dict[tuple[str, str], dict[int, float]]  # of the tensors in answers: by phase and field, then by client
Answer = TypeVar("Answer")


class Answers(Generic[Answer], Iterator[tuple[int, Answer]]):
    """Clients with their answers: a stream that can be iterated over once.

    A second time it would silently be empty, and a method would learn from nothing.
    """

    def __init__(self, verb: str, source: Iterator[tuple[int, Answer]]) -> None:
        self._verb = verb
        self._source = source
        self._over = False

    def __iter__(self) -> "Answers[Answer]":
        if self._over:
            raise RunError(
                f"The answers to {self._verb!r} were iterated over before; they are a stream that comes once. Keep "
                f"them with answers = list(self.ask(cohort, {self._verb!r}, …)) to iterate over them again."
            )
        return self

    def __next__(self) -> tuple[int, Answer]:
        try:
            return next(self._source)
        except StopIteration:
            self._over = True
            raise


class Tap(Protocol):
    """Called with every message that crosses between server and client."""

    def __call__(
        self, direction: Direction, phase: str, client: int, round: int, data: bytes, purpose: Purpose
    ) -> None: ...


def field_digests(message: Message) -> dict[str, str]:
    """Return a short digest of each field, so that two runs can be compared field by field."""
    digests = {}
    for name, value in message.items():
        if isinstance(value, Sparse):
            digests[name] = digest_state({"indices": value.indices, "values": value.values, "size": value.size})[:16]
        else:
            digests[name] = digest_value(value)[:16]
    return digests


def field_norms(message: Message) -> dict[str, float]:
    """Return the norm of each tensor of a message, so that an outlier can be found."""
    found = {}
    for name, value in message.items():
        numbers = value.values if isinstance(value, Sparse) else value
        if isinstance(numbers, Tensor) and numbers.is_floating_point():
            found[name] = float(torch.linalg.vector_norm(numbers, dtype=torch.float64))
    return found


class _Requests:
    """A phase's requests, encoded; one for several clients is encoded once."""

    def __init__(self, message: Message | Callable[[int], Message], value_code: ValueCode) -> None:
        self._message = message
        self._value_code = value_code
        self._recent: dict[int, tuple[Message, bytes, dict[str, str]]] = {}  # by the message's identity

    def to(self, client: int) -> tuple[Message, bytes, dict[str, str]]:
        request = self._message(client) if callable(self._message) else self._message
        if id(request) not in self._recent:
            if len(self._recent) == RECENT:
                del self._recent[next(iter(self._recent))]
            self._recent[id(request)] = (request, encode(request, self._value_code), field_digests(request))
        return self._recent[id(request)]


class Cohort:
    """The clients of one round, asked through any engine.

    `deadline`: the seconds that a client has for an answer. `lost` returns which of the clients are lost in a phase.
    With fewer than `least` clients the run stops. After `enough` answers of a phase the others are not waited for; 0
    waits for all.
    """

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        kinds: Mapping[str, Kind | Counted],
        round: int,
        clients: Iterable[int],
        tap: Tap,
        purpose: Purpose = "training",
        deadline: float | None = None,
        lost: Callable[[str, Sequence[int]], Iterable[int]] | None = None,
        least: int = 1,
        value_code: ValueCode = "plain",
        enough: int = 0,
    ) -> None:
        self.round = round
        self.failures: list[dict[str, Any]] = []
        self.digests: Digests = {}
        self.norms: Norms = {}
        self.waited: dict[str, float] = {}  # seconds spent waiting for answers, by verb
        self._engine = engine
        self._info = engine.info
        self._value_code: ValueCode = value_code
        self._ledger = ledger
        self._kinds = kinds
        self._clients = sorted(clients)
        self._size = len(self._clients)
        self._tap = tap
        self._purpose = purpose
        self._keeps = purpose != "evaluation"  # scoring changes no client's state
        self._deadline = deadline
        self._lost = lost
        self._least = least
        self._enough = enough
        self._sent: dict[int, int] = {}

    @property
    def clients(self) -> Sequence[int]:
        """The clients that remain in the round, in id order."""
        return tuple(self._clients)

    def sent(self, client: int) -> int:
        """Return the bytes of this client's answers in this round so far, without one-off traffic."""
        return self._sent.get(client, 0)

    def drop(self, client: int, reason: str, code: str = "answer") -> None:
        """Take a client out of the round, on record; `code` is its own, or `answer` if its answer does not count."""
        self._clients.remove(client)
        for by_client in self.norms.values():
            by_client.pop(client, None)  # what does not count says nothing about what is usual
        if self._keeps:
            self._engine.discard(client)
        failure = {"event": "client-failed", "round": self.round, "client": client, "code": code, "reason": reason}
        self.failures.append(failure)
        if not self._clients:
            codes = {one["code"] for one in self.failures}
            kind = KINDS.get(code, ClientsFailed) if len(codes) == 1 else ClientsFailed
            raise kind(f"Round {self.round}: no client is left ({self._reasons(self.failures)}). {self._info.logs}")
        self._require_quorum()

    def _require_quorum(self) -> None:
        if len(self._clients) < self._least:
            raise ClientsFailed(
                f"Round {self.round}: {len(self._clients)} clients are left, fewer than min-replies = {self._least} "
                f"({self._reasons(self.failures)}). Committed rounds are kept: {self._info.resume_hint}."
            )

    def _reasons(self, failures: Sequence[dict[str, Any]]) -> str:
        """Return the reasons of the first few, in full where they are known on this machine."""
        reasons = []
        for one in failures[:3]:
            known = self._engine.explain(one["client"]) if one["code"] in CODES else ""
            verb = one["reason"].partition(":")[0]
            reasons.append(f"client {one['client']}: {for_terminal(f'{verb}: {known}' if known else one['reason'])}")
        return "; ".join(reasons)

    def ask(
        self,
        verb: str,
        message: Message | Callable[[int], Message],
        *,
        to: Iterable[int] | None = None,
        once: bool = False,
    ) -> Answers[Message]:
        """Return the answers in client order; a client that failed or sent something unreadable is absent and dropped.

        `once` marks traffic that does not recur every round.
        """
        asked = None if to is None else set(to)
        return Answers(verb, self._ask(verb, message, asked, "one_off" if once else self._purpose))

    def _ask(
        self, verb: str, message: Message | Callable[[int], Message], to: set[int] | None, purpose: Purpose
    ) -> Iterator[tuple[int, Message]]:
        self._require_quorum()
        for client in self._lost(verb, self.clients) if self._lost else ():
            if to is None or client in to:
                self.drop(client, LOST_AT_RANDOM)
        clients = [client for client in self._clients if to is None or client in to]
        results = self._engine.map(self._requests(verb, message, clients, purpose), self._deadline)
        for client in clients:
            begin = time.perf_counter()
            result = next(results)
            self._add_waited(verb, time.perf_counter() - begin)
            answer = self._read(client, verb, purpose, result)
            if answer is not None:
                yield client, answer
        self._stop_at_guards(verb)

    def _requests(
        self, verb: str, message: Message | Callable[[int], Message], clients: Iterable[int], purpose: Purpose
    ) -> Iterator[Request]:
        """Yield a phase's requests as the engine takes them, each recorded as it is sent."""
        requests = _Requests(message, self._value_code)
        for client in clients:
            begin = time.perf_counter()
            request, data, digests = requests.to(client)
            self._record("down", verb, client, purpose, request, data, digests)
            self._add_waited(verb, begin - time.perf_counter())  # the server's own work, while the engine is waited for
            yield Request(client, verb, self.round, data, self._keeps, self._enough)

    def _add_waited(self, verb: str, seconds: float) -> None:
        self.waited[verb] = self.waited.get(verb, 0.0) + seconds

    def absorb(self, other: "Cohort") -> None:
        """Add another cohort's record of the same round to this one's."""
        self.failures += other.failures
        for verb, ways in other.digests.items():
            for way, by_client in ways.items():
                self.digests.setdefault(verb, {}).setdefault(way, {}).update(by_client)
        for verb, seconds in other.waited.items():
            self._add_waited(verb, seconds)

    def _stop_at_guards(self, verb: str) -> None:
        """Raise an error if a guard tripped at half of the clients or more: then the experiment is at fault."""
        broken = [one for one in self.failures if one["code"] == "guard" and one["reason"].startswith(f"{verb}:")]
        if broken and 2 * len(broken) >= self._size:
            raise GuardError(f"Round {self.round}: {self._reasons(broken)}. {self._info.logs}")

    def _read(self, client: int, verb: str, purpose: Purpose, result: Result) -> Message | None:
        if result.trouble is not None:
            stop = STOPS.get(result.kind, RunError)
            trouble = result.trouble.rstrip(".")
            raise stop(
                f"Round {self.round}, client {client}: {trouble}. Committed rounds are kept: {self._info.resume_hint}."
            )
        if result.code is not None:
            code = result.code if result.code in CODES else "failed"
            self.drop(client, f"{verb}: {MEANINGS[code]}", code)
            return None
        if purpose == "training":
            self._sent[client] = self.sent(client) + len(result.payload)
        try:
            answer = decode(result.payload)
            digests, norms = field_digests(answer), field_norms(answer)
        except Exception as problem:  # whatever it is, it is this client's alone
            self._record("up", verb, client, purpose, {}, result.payload, {})  # its bytes were sent all the same
            reason = str(problem) if isinstance(problem, WireError) else "it cannot be read"
            self.drop(client, f"{verb}: {reason}")
            return None
        self._record("up", verb, client, purpose, answer, result.payload, digests)
        for name, norm in norms.items():
            self.norms.setdefault((verb, name), {})[client] = norm
        return answer

    def _record(
        self,
        direction: Direction,
        phase: str,
        client: int,
        purpose: Purpose,
        message: Message,
        data: bytes,
        digests: dict[str, str],
    ) -> None:
        self._tap(direction, phase, client, self.round, data, purpose)
        self._ledger.record(
            round=self.round,
            phase=phase,
            client=client,
            direction=direction,
            message=message,
            size=len(data),
            kinds=self._kinds,
            purpose=purpose,
        )
        self.digests.setdefault(phase, {}).setdefault(direction, {})[client] = digests
