"""The nodes of a deployment: which are online, which client each is, and which know the run."""

import time
from dataclasses import replace
from typing import Any

from refprotofl.core import RunError, for_terminal
from refprotofl.deploy.headers import PROTOCOL, Greeted
from refprotofl.deploy.registry import NodeRegistry
from refprotofl.deploy.status import StatusCallback, Wait
from refprotofl.deploy.transport import SLACK, Envelope, Node, Reply, Sending, Transport, Unreadable, collect
from refprotofl.engines import CODES, Code
from refprotofl.federation import Presence

HELLO, RUN = "hello", "run"
GREETING = 30.0  # seconds to wait for an answer to a greeting or to the experiment; a later answer counts, too
LOST = 300.0  # seconds after which a message without a reply is sent once more
ALONE = 60.0  # seconds for which a node that is left out is not greeted again: its owner may correct its settings


class Fleet:
    """The nodes of a run. Each gets the experiment, and the test set if there is one, before any request."""

    def __init__(
        self,
        transport: Transport,
        registry: NodeRegistry,
        experiment: dict[str, Any],
        test: bytes,
        progress: StatusCallback,
    ) -> None:
        self._transport = transport
        self._registry = registry
        self._experiment = experiment
        self._test = test
        self._progress = progress
        self._informed: dict[int, int] = {}  # by client: the number of the node that knows the run
        self._refusals: dict[int, Code] = {}  # by client: why its node does not take part
        self._left_out: dict[Node, tuple[str, float]] = {}  # nodes without a place: why, until when
        self._away: dict[int, float] = {}  # by client: since when its node is away
        self._under_way: dict[tuple[str, int], tuple[str, float]] = {}  # by action and node: the message, since when

    @property
    def run(self) -> str:
        return self._registry.run

    def name_of(self, client: int) -> str:
        return self._registry.name_of(client)

    def label_of(self, client: int) -> str:
        return self._registry.label_of(client)

    def gather(self, deadline: float, least: int) -> None:
        """Wait for all clients' nodes; after the deadline, start with those that are here, if they suffice."""
        until, since = time.monotonic() + deadline, time.time()
        while lacking := sorted([*self._registry.missing, *self._registry.away]):
            self._progress.waiting([Wait(self.label_of(client), "connection", since) for client in lacking])
            if time.monotonic() > until:
                break
            self._transport.rest()
            self.look()
        if len(self._registry.here()) < least:
            raise RunError(
                f"{len(self._registry.here())} nodes are online, fewer than min-replies = {least}. Start more, "
                "then run again with the same --out."
            )

    def look(self, *, again: bool = False) -> None:
        """Find the nodes that are online, assign new ones to clients, and send the run to those that do not know it.

        A node that refused gets it `again` only if that is set.
        """
        if again:
            self._refusals.clear()
        self._registry.seen(self._transport.nodes())
        now = time.monotonic()
        self._away = {client: self._away.get(client, now) for client in self._registry.away}
        newcomers = self._registry.newcomers()
        self._left_out = {node: why for node, why in self._left_out.items() if node in newcomers}
        alone = {node for node, (_, until) in self._left_out.items() if now < until}
        self._greet([node for node in newcomers if node not in alone])
        self._inform()

    def presence(self, deadline: float) -> Presence:
        """Look for nodes; a node is expected until it has been away for as long as it would be waited for."""
        self.look(again=True)
        here, now = set(self._registry.here()), time.monotonic()
        recent = {client for client, since in self._away.items() if now - since < deadline}
        return Presence(here, recent | set(self._registry.missing))

    def ready(self, client: int) -> int | None:
        """Return the node to send a client's request to, if it is online and knows the run."""
        node = self._registry.node_of(client)
        return node.number if node is not None and self._informed.get(client) == node.number else None

    def refusal(self, client: int) -> Code | None:
        return self._refusals.get(client)

    def is_missing(self, client: int) -> bool:
        """Return True if no node is this client: none connected, or its key was revoked."""
        return not self._registry.is_taken(client)

    def forget(self, client: int) -> None:
        """Note that a client's node does not know the run any more."""
        self._informed.pop(client, None)

    def _greet(self, nodes: list[Node]) -> None:
        if not nodes:
            return
        replies = self._exchange({node.identity: Sending(node.number, HELLO, Envelope({})) for node in nodes})
        named: dict[Node, str] = {}
        for node in nodes:
            header = _header(replies.get(node.identity))
            if header is None:
                continue  # it is greeted again at the next look
            greeted, label = _greeted(header), for_terminal(node.label)
            if greeted is None:
                self._leave_out(node, f"Node {label} is left out: it has another version of refprotofl.")
            elif greeted.code is not None:
                self._leave_out(node, f"Node {label} is left out: it cannot take part; its log says why.")
            else:
                named[node] = greeted.name
        for node, complaint in self._registry.admit(named).items():
            self._leave_out(node, complaint)

    def _leave_out(self, node: Node, complaint: str) -> None:
        """Do not greet a node for a while; a complaint is shown once."""
        if self._left_out.get(node, ("", 0.0))[0] != complaint:
            self._progress.on_note(complaint)
        self._left_out[node] = complaint, time.monotonic() + ALONE

    def _inform(self) -> None:
        online = {client: self._registry.node_of(client) for client in self._registry.here()}
        uninformed = {
            client: node
            for client, node in online.items()
            if node and self._informed.get(client) != node.number and client not in self._refusals
        }
        if not uninformed:
            return
        sendings = {str(client): Sending(node.number, RUN, self._news(client)) for client, node in uninformed.items()}
        for name, reply in self._exchange(sendings).items():
            client, header = int(name), _header(reply)
            if reply.gone:
                continue  # it gets the run when it is back
            code = header.get("code", "failed") if header is not None else "failed"
            if code is None:
                self._informed[client] = uninformed[client].number
                self._refusals.pop(client, None)
            else:
                self._refusals[client] = code if code in CODES else "failed"

    def _news(self, client: int) -> Envelope:
        return Envelope({"run": self.run, "client": client, "experiment": self._experiment}, self._test)

    def _exchange(self, sendings: dict[str, Sending]) -> dict[str, Reply]:
        """Return the replies by name. A slow node is not sent the same again: it would never come to an end."""
        kinds = {name: (sending.action, sending.node) for name, sending in sendings.items()}
        now = time.monotonic()
        new = [name for name, kind in kinds.items() if now - self._under_way.get(kind, ("", now - LOST))[1] >= LOST]
        pushed = self._transport.push([replace(sendings[name], valid=LOST + SLACK) for name in new])
        for name, message in zip(new, pushed, strict=True):
            if message:
                self._under_way[kinds[name]] = message, now
        names = {self._under_way[kind][0]: name for name, kind in kinds.items() if kind in self._under_way}
        found = collect(self._transport, names, GREETING if new else 0.0)
        for message in found:
            del self._under_way[kinds[names[message]]]
        return {names[message]: reply for message, reply in found.items()}


def _header(reply: Reply | None) -> dict[str, Any] | None:
    return dict(reply.envelope.header) if reply is not None and reply.envelope is not None else None


def _greeted(header: dict[str, Any]) -> Greeted | None:
    """Return a node's answer to a greeting; None if it speaks another protocol."""
    try:
        found = Greeted.read(header)
    except Unreadable:
        return None
    return found if found.protocol == PROTOCOL else None
