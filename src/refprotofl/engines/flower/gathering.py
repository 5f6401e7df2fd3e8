"""The nodes of a deployment: who is online, who is which client, and who has been told of the run."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from refprotofl.engines.engine import CODES, Code
from refprotofl.engines.flower.courier import SLACK, Courier, Reply, Sending
from refprotofl.engines.flower.parcels import Parcel, Unreadable
from refprotofl.engines.flower.roster import Node, Roster, as_node
from refprotofl.engines.flower.routes import PROTOCOL, Greeted
from refprotofl.errors import RunError

HELLO, RUN = "hello", "run"
GREETING = 30.0  # seconds that are waited for an answer to a greeting or to news of the run; a later one counts, too
LOST = 300.0  # seconds after which a message without a reply is sent once more
ALONE = 60.0  # seconds for which a node that is left out is not greeted again: its owner may correct its config
Say = Callable[[str], None]


class Fleet:
    """Every node is told the experiment and given the test set, if there is one, before it is asked for anything."""

    def __init__(self, courier: Courier, roster: Roster, experiment: dict[str, Any], test: bytes, say: Say) -> None:
        self._courier = courier
        self._roster = roster
        self._experiment = experiment
        self._test = test
        self._say = say
        self._told: dict[int, int] = {}  # by client: the number of the node that knows of the run
        self._refusals: dict[int, Code] = {}  # by client: why its node does not take part
        self._left_out: dict[Node, tuple[str, float]] = {}  # nodes that were greeted and are no client: why, until when
        self._under_way: dict[tuple[str, int], tuple[str, float]] = {}  # by action and node: the message, since when

    @property
    def run(self) -> str:
        return self._roster.run

    def name_of(self, client: int) -> str:
        return self._roster.name_of(client)

    def gather(self, deadline: float | None, least: int) -> None:
        """Waits for all clients' nodes; when the deadline is over, for the least number that may begin."""
        until = None if deadline is None else time.monotonic() + deadline
        said: list[int] = []
        while True:
            self.look()
            lacking = sorted([*self._roster.missing, *self._roster.away])
            if not lacking:
                return
            if until is not None and time.monotonic() > until:
                break
            if lacking != said:
                self._say(f"Waiting for the nodes of clients {', '.join(map(str, lacking))}.")
                said = lacking
            self._courier.rest()
        if len(self._roster.here()) < least:
            raise RunError(
                f"{len(self._roster.here())} nodes are online, fewer than min-replies = {least}; start more, then run "
                "again with the same out."
            )

    def look(self, *, again: bool = False) -> None:
        """Who is online now. Newcomers become clients, and whoever does not know of the run is told.

        Who refused is only told `again` if that is said.
        """
        if again:
            self._refusals.clear()
        self._roster.seen([as_node(info) for info in self._courier.nodes()])
        online, now = self._roster.newcomers(), time.monotonic()
        self._left_out = {node: why for node, why in self._left_out.items() if node in online}
        alone = {node for node, (_, until) in self._left_out.items() if now < until}
        self._greet([node for node in self._roster.candidates() if node not in alone])
        self._tell()

    def ready(self, client: int) -> int | None:
        """The node to send a client's request to, if it is online and knows of the run."""
        node = self._roster.node_of(client)
        return node.number if node is not None and self._told.get(client) == node.number else None

    def refusal(self, client: int) -> Code | None:
        return self._refusals.get(client)

    def is_missing(self, client: int) -> bool:
        """No node has come for it yet."""
        return not self._roster.is_taken(client)

    def forget(self, client: int) -> None:
        """Its node does not know of the run any more."""
        self._told.pop(client, None)

    def _greet(self, nodes: list[Node]) -> None:
        if not nodes:
            return
        replies = self._exchange({node.identity: Sending(node.number, HELLO, Parcel({})) for node in nodes})
        wishes: dict[Node, int | None] = {}
        for node in nodes:
            header = _header(replies.get(node.identity))
            if header is None:
                continue  # it is asked again at the next look
            told = _greeted(header)
            if told is None:
                self._leave_out(node, f"Node {node.label} is left out: it has another version of refprotofl.")
            elif told.code is not None:
                self._leave_out(node, f"Node {node.label} is left out: it cannot take part; its log tells why.")
            else:
                wishes[node] = told.client
        for node, complaint in self._roster.admit(wishes).items():
            self._leave_out(node, complaint)

    def _leave_out(self, node: Node, complaint: str) -> None:
        """For a while; what was said before is not said again."""
        if self._left_out.get(node, ("", 0.0))[0] != complaint:
            self._say(complaint)
        self._left_out[node] = complaint, time.monotonic() + ALONE

    def _tell(self) -> None:
        online = {client: self._roster.node_of(client) for client in self._roster.here()}
        untold = {
            client: node
            for client, node in online.items()
            if node and self._told.get(client) != node.number and client not in self._refusals
        }
        if not untold:
            return
        sendings = {str(client): Sending(node.number, RUN, self._news(client)) for client, node in untold.items()}
        for name, reply in self._exchange(sendings).items():
            client, header = int(name), _header(reply)
            if reply.is_gone:
                continue  # it is told when it is back
            code = header.get("code", "failed") if header is not None else "failed"
            if code is None:
                self._told[client] = untold[client].number
                self._refusals.pop(client, None)
            else:
                self._refusals[client] = code if code in CODES else "failed"

    def _news(self, client: int) -> Parcel:
        return Parcel({"run": self.run, "client": client, "experiment": self._experiment}, self._test)

    def _exchange(self, sendings: dict[str, Sending]) -> dict[str, Reply]:
        """The replies by name. A node that is slow is not sent the same again: it would never come to an end."""
        kinds = {name: (sending.action, sending.node) for name, sending in sendings.items()}
        now = time.monotonic()
        new = [name for name, kind in kinds.items() if now - self._under_way.get(kind, ("", now - LOST))[1] >= LOST]
        pushed = self._courier.push([replace(sendings[name], valid=LOST + SLACK) for name in new])
        for name, message in zip(new, pushed, strict=True):
            if message:
                self._under_way[kinds[name]] = message, now
        names = {self._under_way[kind][0]: name for name, kind in kinds.items() if kind in self._under_way}
        found = self._courier.collect(names, GREETING if new else 0.0)
        for message in found:
            del self._under_way[kinds[names[message]]]
        return {names[message]: reply for message, reply in found.items()}


def _header(reply: Reply | None) -> dict[str, Any] | None:
    return dict(reply.parcel.header) if reply is not None and reply.parcel is not None else None


def _greeted(header: dict[str, Any]) -> Greeted | None:
    """None if the node does not speak as we do."""
    try:
        told = Greeted.read(header)
    except Unreadable:
        return None
    return told if told.protocol == PROTOCOL else None
