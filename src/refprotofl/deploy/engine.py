"""The engine of a deployment: each client is a node with its own data and store, on another machine.

The server knows only the digests of a client's states. A request names the state to continue from and those that may be
returned to, so nothing more is sent when a round is committed, given up or repeated.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from refprotofl.core import InputError
from refprotofl.deploy.fleet import LOST, Fleet
from refprotofl.deploy.headers import Answered, Route
from refprotofl.deploy.node import NEEDS_REQUEST, NEEDS_RUN
from refprotofl.deploy.status import StatusCallback, Wait
from refprotofl.deploy.transport import SLACK, Envelope, Reply, Sending, Transport, Unreadable
from refprotofl.engines import EngineInfo, Record, Request, Result, start_ahead

ASK = "ask"
DEADLINE = 600.0  # seconds for an answer where the experiment sets none: no node can hold up a run for ever
LATE, IMPATIENCE = 2, 0.1  # after this many answers in a row that were late or missing, the share of the deadline
SHORTEST_WAIT = 30.0  # seconds: the least
TRIES = 4  # attempts to send a request to a node that the transport lists as online and does not take messages for
AGAIN = 1.0  # seconds before a request that came back is sent again
LOOK = 2.0  # seconds between two looks for nodes that are online, while one is missing
SHOWN_AFTER = 10.0  # seconds after which a node that is waited for is shown
AHEAD = 256  # requests whose answers are fetched, so that no more wait here for those before them
FETCHED = 0.5  # seconds that the answers before it may take to be fetched, for each request under way


@dataclass(eq=False)
class _Asked:
    """A request, how far it is on its way, and its result once there is one."""

    route: Route
    payload: bytes
    enough: int  # answers in its phase after which it is not waited for; 0: it is
    begun: float = field(default_factory=time.monotonic)
    messages: list[str] = field(default_factory=list)  # the transport's ids, while they are under way
    node: int = 0  # the node they were sent to
    since: float = field(default_factory=time.time)
    remind: float = 0.0  # when the node is reminded of it
    refusals: int = 0  # how often its node said that it has not got it
    unknown: int = 0  # attempts for which the transport did not know its node, and listed it as online
    not_before: float = 0.0  # when it may be sent again
    result: Result | None = None
    state: str = ""  # the digest of the client's state with the answer

    @property
    def phase(self) -> tuple[int, str]:
        return self.route.phase, self.route.verb

    def is_with(self, node: int | None) -> bool:
        return bool(self.messages) and self.node == node


class DeploymentEngine:
    """`records` are those of the last committed round, `kept` by round those that may be returned to."""

    info = EngineInfo(
        max_in_flight=None,
        resume_hint="continue with refprotofl deploy run and the same --out",
        logs="The nodes' logs say more.",
    )

    def __init__(
        self,
        transport: Transport,
        fleet: Fleet,
        progress: StatusCallback,
        records: Mapping[int, Record],
        kept: Mapping[int, Mapping[int, Record]] | None = None,
    ) -> None:
        self._transport = transport
        self._fleet = fleet
        self._progress = progress
        self._committed = _digests(records)
        self._kept = {round: _digests(records) for round, records in (kept or {}).items()}
        self._newest = dict(self._committed)
        self._moved: set[int] = set()
        self._asked: dict[_Asked, None] = {}  # in order
        self._phases: dict[int, int] = {}  # requests to each client in this round
        self._round = 0
        self._looked = 0.0
        self._late: dict[int, int] = {}  # by client: answers in a row that were late, or whose node was away
        self._answered: dict[tuple[int, str], set[int]] = {}  # by phase: the clients that have answered

    def map(self, requests: Iterable[Request], deadline: float | None) -> Iterator[Result]:
        for asked in start_ahead(requests, self._start, self.info.max_in_flight):
            yield self._finish(asked, deadline or DEADLINE)

    def _start(self, request: Request) -> _Asked:
        if request.round != self._round:
            self._round = request.round
            self._phases.clear()
            self._answered.clear()
            self._fleet.look(again=True)
        client = request.client
        self._phases[client] = phase = self._phases.get(client, 0) + 1
        known = [records[client] for records in (*self._kept.values(), self._committed) if client in records]
        retain = list(dict.fromkeys(known))
        route = Route(
            run=self._fleet.run,
            client=client,
            round=request.round,
            phase=phase,
            attempt=0,
            verb=request.verb,
            keeps=request.keeps,
            base=self._newest.get(client, ""),
            retain=retain,
        )
        asked = _Asked(route, request.payload, request.enough)
        self._asked[asked] = None
        return asked

    def _finish(self, asked: _Asked, deadline: float) -> Result:
        client = asked.route.client
        deadline = self._patience(client, deadline)
        while asked.result is None:
            self._send(deadline)
            received = self._receive(asked)
            if asked.result is None and not received:
                self._give_up_on(asked, deadline)
            if asked.result is None:
                self._wait()
        del self._asked[asked]
        code = asked.result.code
        self._late[client] = self._late.get(client, 0) + 1 if code in ("late", "absent") else 0
        if code is None and asked.route.keeps:
            self._newest[client] = asked.state
            self._moved.add(client)
        if code is not None and code != "spare":
            self._progress.absent(client, self._fleet.label_of(client), asked.route.round, code)
        return asked.result

    def _patience(self, client: int, deadline: float) -> float:
        """Return the seconds to wait for a client.

        One that was late or away again and again has fewer until it answers in time, so that it cannot hold up every
        phase.
        """
        if self._late.get(client, 0) < LATE:
            return deadline
        return min(deadline, max(SHORTEST_WAIT, IMPATIENCE * deadline))

    def discard(self, client: int) -> None:
        self._asked = {asked: None for asked in self._asked if asked.route.client != client}
        for answered in self._answered.values():
            answered.discard(client)
        self._newest[client] = self._committed.get(client, "")
        self._moved.discard(client)

    def settle(self, round: int) -> dict[int, Record]:
        self._asked.clear()
        moved = [client for client in sorted(self._moved) if self._newest[client]]
        return {client: {"digest": self._newest[client], "node": self._fleet.name_of(client)} for client in moved}

    def committed(self, round: int, oldest: int) -> None:
        self._committed |= {client: self._newest[client] for client in self._moved if self._newest[client]}
        self._moved.clear()
        self._kept = {one: records for one, records in self._kept.items() if one >= oldest}
        self._kept[round] = dict(self._committed)

    def explain(self, client: int) -> str:
        return ""  # what happens at a node is not known here

    def close(self) -> None:
        self._asked.clear()

    def _send(self, deadline: float) -> None:
        """Send every request that waits and whose node is online; one whose node reconnected as another is sent anew.

        A node that has it and is silent is reminded now and then: the transport may have lost the request or its
        answer.
        """
        due = [(asked, node) for asked in self._asked if (node := self._due(asked)) is not None]
        sendings = [self._sending(asked, node, deadline) for asked, node in due]
        pushed = self._transport.push(sendings)
        now, unknown = time.monotonic(), list[_Asked]()
        for (asked, node), message in zip(due, pushed, strict=True):
            if not asked.is_with(node):
                asked.messages, asked.node = [], node
            if not message:
                unknown.append(asked)
                continue
            asked.messages.append(message)
            if not asked.route.attempt:
                asked.begun = now
            asked.remind = now + LOST * 2 ** (len(asked.messages) - 1)
            asked.route = replace(asked.route, attempt=asked.route.attempt + 1)
        if unknown:
            self._look_for(unknown)

    def _due(self, asked: _Asked) -> int | None:
        """Return the node to send a request to now, or a reminder of it; None if nothing is due."""
        now = time.monotonic()
        if asked.result is not None or now < asked.not_before:
            return None
        node = self._fleet.ready(asked.route.client)
        return None if asked.is_with(node) and now < asked.remind else node

    def _sending(self, asked: _Asked, node: int, deadline: float) -> Sending:
        """Return the message, valid while its answer is waited for: a node that is later need not do the work."""
        envelope = Envelope(asked.route.header(), asked.payload)
        if asked.is_with(node):
            envelope = Envelope(replace(asked.route, reminds=asked.route.key(asked.payload)).header())
        left = max(0.0, deadline - (time.monotonic() - asked.begun))
        valid = left + SLACK + FETCHED * len(self._asked)
        return Sending(node, ASK, envelope, str(asked.route.round), valid)

    def _look_for(self, unknown: list[_Asked]) -> None:
        """Look for nodes that the transport took no message for: they are gone, unless it lists them as online."""
        self._look()
        for asked in unknown:
            asked.not_before = time.monotonic() + AGAIN
            asked.unknown += self._fleet.ready(asked.route.client) == asked.node
            if asked.unknown >= TRIES:
                asked.result = Result(code="absent")

    def _receive(self, awaited: _Asked) -> bool:
        """Fetch replies, first to the request that is awaited; return whether there were any."""
        next_ones = (awaited, *islice(self._asked, AHEAD))
        under_way = {one: asked for asked in next_ones for one in asked.messages if asked.result is None}
        replies = self._transport.pull(under_way)
        for message, reply in replies.items():
            asked = under_way.get(message)
            if asked is not None and asked.result is None:
                self._take(asked, reply)
        return bool(replies)

    def _take(self, asked: _Asked, reply: Reply) -> None:
        asked.messages = []
        if reply.gone:  # it is asked again when it is back
            asked.not_before = time.monotonic() + AGAIN
            self._looked = 0.0
            return
        if reply.envelope is None:
            asked.result = Result()  # nothing of ours: no answer can be read from it
            return
        if NEEDS_RUN in reply.envelope.header:
            self._fleet.forget(asked.route.client)
            return
        if NEEDS_REQUEST in reply.envelope.header:
            asked.refusals += 1
            if asked.refusals >= TRIES:
                asked.result = Result(code="failed")
            return  # else it is sent anew
        try:
            answered = Answered.read(reply.envelope.header)
        except Unreadable:
            asked.result = Result()
            return
        if not answered.belongs_to(asked.route):
            asked.result = Result()
            return
        asked.state, code = answered.state, answered.code
        asked.result = Result(reply.envelope.payload) if code is None else Result(code=code)
        if code is None:
            self._answered.setdefault(asked.phase, set()).add(asked.route.client)

    def _give_up_on(self, asked: _Asked, deadline: float) -> None:
        client = asked.route.client
        if asked.enough and len(self._answered.get(asked.phase, ())) >= asked.enough:
            asked.result = Result(code="spare")
            return
        refused = self._fleet.refusal(client)
        if refused is not None:
            asked.result = Result(code=refused)
        elif self._fleet.is_missing(client):
            asked.result = Result(code="absent")
        elif time.monotonic() - asked.begun > deadline:
            asked.result = Result(code="late" if asked.messages else "absent")

    def _wait(self) -> None:
        """Rest before the next look. A node that is offline may come back; one that has a request may be gone."""
        if time.monotonic() - self._looked > LOOK:
            self._look()
            self._progress.waiting(self._waits())
        self._transport.rest()

    def _waits(self) -> list[Wait]:
        """Return the nodes that have been waited for so long that it is worth showing."""
        now = time.monotonic()
        late = [one for one in self._asked if one.result is None and now - one.begun > SHOWN_AFTER]
        return [Wait(self._fleet.label_of(one.route.client), one.route.verb, one.since) for one in late]

    def _look(self) -> None:
        self._looked = time.monotonic()
        self._fleet.look()


def _digests(records: Mapping[int, Record]) -> dict[int, str]:
    if any("node" not in record for record in records.values()):
        raise InputError(
            "The clients' states of this run are in its folder, not on nodes: resume it with run --resume."
        )
    return {client: str(record["digest"]) for client, record in records.items()}
