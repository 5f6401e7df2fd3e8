"""The engine of a deployment: every client is a node with data and a store of its own, somewhere else.

The server knows of a client's states their digests alone. A request names the one to go on from, and those that may be
come back to; so nothing more is sent when a round is committed, given up or done again.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from refprotofl.engines.engine import Record, Request, Result
from refprotofl.engines.flower.courier import FINAL, Courier, Reply, Sending
from refprotofl.engines.flower.gathering import Fleet
from refprotofl.engines.flower.node import NEEDS_RUN
from refprotofl.engines.flower.parcels import Parcel, Unreadable
from refprotofl.engines.flower.routes import Answered, Route
from refprotofl.errors import MachineError

ASK = "ask"
TRIES = 4  # how often a request is sent to a node whose process dies of it
AGAIN = 1.0  # seconds before a request that came back is sent again
LOOK = 2.0  # seconds between two looks for who is online, while somebody is missing
CRASHED = 8
AHEAD = 256  # requests whose answers are fetched, so that no more wait here for those before them


@dataclass
class _Asked:
    route: Route
    payload: bytes
    begun: float = field(default_factory=time.monotonic)
    message: str = ""  # Flower's id, while it is under way
    node: int = 0  # whom it was sent to
    crashes: int = 0
    not_before: float = 0.0  # when it may be sent again
    result: Result | None = None
    state: str = ""  # the digest of the client's state with the answer


class DeploymentEngine:
    """`records` are those of the last committed round, `kept` by round those that may be gone back to."""

    def __init__(
        self,
        courier: Courier,
        fleet: Fleet,
        records: Mapping[int, Record],
        kept: Mapping[int, Mapping[int, Record]] | None = None,
    ) -> None:
        self._courier = courier
        self._fleet = fleet
        self._committed = _digests(records)
        self._kept = {round: _digests(records) for round, records in (kept or {}).items()}
        self._newest = dict(self._committed)
        self._moved: set[int] = set()
        self._asked: dict[int, _Asked] = {}  # by ticket
        self._phases: dict[int, int] = {}  # requests to each client in this round
        self._round = 0
        self._issued = 0
        self._looked = 0.0

    def submit(self, request: Request) -> int:
        if request.round != self._round:
            self._round = request.round
            self._phases.clear()
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
        self._issued += 1
        self._asked[self._issued] = _Asked(route, request.payload)
        return self._issued

    def result(self, ticket: int, deadline: float | None) -> Result:
        asked = self._asked[ticket]
        while asked.result is None:
            self._send()
            heard = self._hear()
            if asked.result is None and not heard:
                self._give_up_on(asked, deadline)
            if asked.result is None and not heard:
                self._wait()
        del self._asked[ticket]
        if asked.result.code is None and asked.route.keeps:
            self._newest[asked.route.client] = asked.state
            self._moved.add(asked.route.client)
        return asked.result

    def discard(self, client: int) -> None:
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

    def _send(self) -> None:
        """Every request that waits and whose node is online; one whose node came back as another is sent anew."""
        ready: list[tuple[_Asked, Sending]] = []
        for asked in self._asked.values():
            node = self._fleet.ready(asked.route.client) if asked.result is None else None
            if node is None or (asked.message and asked.node == node) or time.monotonic() < asked.not_before:
                continue
            parcel = Parcel(asked.route.header(), asked.payload)
            ready.append((asked, Sending(node, ASK, parcel, str(asked.route.round))))
            asked.node = node
        for (asked, _), message in zip(ready, self._courier.push([sending for _, sending in ready]), strict=True):
            if not message:
                raise MachineError("The SuperLink took no message; its log tells why. Go on with the same run folder.")
            asked.message = message
            asked.route = replace(asked.route, attempt=asked.route.attempt + 1)

    def _hear(self) -> bool:
        next_ones = islice(self._asked.values(), AHEAD)
        under_way = {asked.message: asked for asked in next_ones if asked.message and asked.result is None}
        replies = self._courier.pull(under_way)
        for message, reply in replies.items():
            asked = under_way.get(message)
            if asked is not None:
                self._take(asked, reply)
        return bool(replies)

    def _take(self, asked: _Asked, reply: Reply) -> None:
        asked.message = ""
        if reply.error is not None:
            asked.crashes += reply.error == CRASHED
            if reply.error in FINAL or asked.crashes >= TRIES:
                asked.result = Result(code="failed")
            asked.not_before = time.monotonic() + AGAIN
            self._looked = 0.0
            return  # else the node is gone: it is asked again when it is back
        if reply.parcel is None:
            asked.result = Result()  # nothing of ours: no answer can be read from it
            return
        if NEEDS_RUN in reply.parcel.header:
            self._fleet.forget(asked.route.client)
            return
        try:
            told = Answered.read(reply.parcel.header)
        except Unreadable:
            asked.result = Result()
            return
        if not told.belongs_to(asked.route):
            asked.result = Result()
            return
        asked.state = told.state
        asked.result = Result(code=told.code) if told.code is not None else Result(reply.parcel.payload)

    def _give_up_on(self, asked: _Asked, deadline: float | None) -> None:
        client = asked.route.client
        refused = self._fleet.refusal(client)
        if refused is not None:
            asked.result = Result(code=refused)
        elif self._fleet.is_missing(client):
            asked.result = Result(code="absent")
        elif deadline is not None and time.monotonic() - asked.begun > deadline:
            asked.result = Result(code="late" if asked.message else "absent")

    def _wait(self) -> None:
        """Who is asked and not online may come back; who is on its way may be gone."""
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            self._fleet.look()
        self._courier.rest()


def _digests(records: Mapping[int, Record]) -> dict[int, str]:
    return {client: str(record["digest"]) for client, record in records.items()}
