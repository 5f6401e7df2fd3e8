"""A broker, a server's transport and nodes in this process, and what a network does to them, on purpose."""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deployments import FIRST, Grid, key_of

from refprotofl.deploy import node
from refprotofl.deploy.admission import fingerprint
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.deploy.transport import Envelope, Node, Reply, Sending
from refprotofl.engines.mqtt.frames import REPLY, read_frame
from refprotofl.engines.mqtt.frames import Reply as ReplyFrame
from refprotofl.engines.mqtt.link import Connected, Deliver, Topics, node_id
from refprotofl.engines.mqtt.node import MqttNode
from refprotofl.engines.mqtt.parts import ContentStore
from refprotofl.engines.mqtt.transport import MqttTransport, _Exchange

MOST = 64_000_000
SLOW = 5  # looks at which a slow answer is not there


class MemoryBroker:
    """Delivers in order, each message as often as `copies` says, and keeps those that are to be retained."""

    def __init__(self) -> None:
        self.links: list[MemoryLink] = []
        self.retained: dict[str, bytes] = {}
        self.waiting: deque[tuple[str, bytes, float | None]] = deque()
        self.crossed: list[tuple[str, bytes]] = []
        self._busy = False

    def copies(self, topic: str, data: bytes) -> list[bytes]:
        return [data]

    def publish(self, topic: str, data: bytes, valid: float | None, retain: bool) -> None:
        if retain:
            self.retained[topic] = data
        self.waiting.append((topic, data, valid))
        self.pump()

    def pump(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            while self.waiting:
                topic, data, valid = self.waiting.popleft()
                self.crossed.append((topic, data))
                for copy in self.copies(topic, data):
                    for link in list(self.links):
                        link.receive(topic, copy, valid)
        finally:
            self._busy = False


class MemoryLink:
    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._subscriptions: list[list[str]] = []

    def open(self, subscriptions: list[str], deliver: Deliver, connected: Connected) -> None:
        self._subscriptions = [one.split("/") for one in subscriptions]
        self._deliver, self.connected = deliver, connected
        self._broker.links.append(self)
        connected(False)
        for topic, data in self._broker.retained.items():
            if data and self._wants(topic):
                deliver(topic, data, None, True)

    def publish(self, topic: str, data: bytes, valid: float | None = None, *, retain: bool = False) -> None:
        self._broker.publish(topic, data, valid, retain)

    def close(self) -> None:
        self._broker.links.remove(self)

    def receive(self, topic: str, data: bytes, valid: float | None) -> None:
        if self._wants(topic):
            self._deliver(topic, data, valid, False)

    def _wants(self, topic: str) -> bool:
        parts = topic.split("/")
        return any(
            len(one) == len(parts) and all(mine in ("+", part) for mine, part in zip(one, parts, strict=True))
            for one in self._subscriptions
        )


@dataclass(eq=False)
class _Running:
    """A node's process: the node of a grid, its number on the wire, and its connection."""

    identity: str
    node: MqttNode
    link: MemoryLink
    number: int


class GridTransport(MqttTransport):
    """The real transport; nodes work whenever it has sent something, and messages have the fates of the grid."""

    def __init__(self, grid: "MqttGrid") -> None:
        self._grid = grid
        self._sent: set[int] = set()
        self._looks = 0
        super().__init__(MemoryLink(grid.broker), grid.admitted, MOST)

    def nodes(self) -> list[Node]:
        self._grid.update()
        return super().nodes()

    def _push(self, node: str | None, sending: Sending, announced: Any) -> str:
        number = sending.node // 1000
        self._grid.asked.append((number, sending.action))
        self._grid.valid.append(sending.valid)
        fate = self._fate = self._grid.fate(number, sending)
        return "" if fate == "unknown" else super()._push(node, sending, announced)

    def _send(self, exchange: _Exchange) -> None:
        fate = "" if exchange.number in self._sent else self._fate
        self._sent.add(exchange.number)
        number = exchange.sending.node // 1000
        if fate == "gone" or number not in self._grid.nodes:
            self._grid.stop(number)
        if fate in ("lost", "gone"):
            return
        if fate == "deaf":
            self._grid.broker.deaf.add((exchange.node, exchange.number))
        if fate == "slow":
            self._grid.broker.slow[exchange.node, exchange.number] = SLOW
        for _ in range(2 if fate == "twice" else 1):
            super()._send(exchange)
        self._grid.work()

    def pull(self, ids: Any) -> dict[str, Reply]:
        self._grid.broker.look()
        found = super().pull(ids)
        self._grid.work()
        return found

    def rest(self, most: float | None = None) -> None:
        self._grid.work()


class GridBroker(MemoryBroker):
    """`deaf`: answers that get lost; `slow`: those that arrive after so many looks. By node and exchange."""

    def __init__(self) -> None:
        super().__init__()
        self.deaf: set[tuple[str, int]] = set()
        self.slow: dict[tuple[str, int], int] = {}
        self._held: list[tuple[tuple[str, int], str, bytes]] = []

    def copies(self, topic: str, data: bytes) -> list[bytes]:
        if "/u/" not in topic or data[0] & 7 != REPLY:
            return [data]
        frame = read_frame(data)
        assert isinstance(frame, ReplyFrame)
        key = Topics().node_of(topic), frame.exchange
        if key in self.slow:
            self._held.append((key, topic, data))
            return []
        return [] if key in self.deaf else [data]

    def look(self) -> None:
        for held in list(self._held):
            key, topic, data = held
            self.slow[key] -= 1
            if self.slow[key] < 0:
                self._held.remove(held)
                del self.slow[key]
                self.publish(topic, data, None, False)


@dataclass
class MqttGrid(Grid):
    """Nodes over MQTT."""

    broker: GridBroker = field(default_factory=GridBroker)
    running: dict[int, _Running] = field(default_factory=dict)
    starts: int = 0

    def connect(self) -> MqttTransport:
        self.update()
        return GridTransport(self)

    def admitted(self) -> dict[str, Node]:
        found = self.admissions.nodes.items()
        return {node_id(one.key): Node(0, one.key, name) for name, one in found}

    def identity(self, number: int) -> str:
        name = self.names.get(number, f"node-{number - FIRST}")
        by_name = key_of(int(name.removeprefix("node-"))) if name else f"{number}".encode()
        return node_id(fingerprint(self.keys.get(number, by_name)))

    def update(self) -> None:
        """Start the nodes that are not running, and stop those that are no longer there."""
        for number in [one for one in self.running if one not in self.nodes]:
            self.stop(number)
        for number in [one for one in self.nodes if one not in self.running]:
            self.start(number)

    def start(self, number: int) -> None:
        self.starts += 1
        link, process = MemoryLink(self.broker), 1000 * number + self.starts % 1000
        identity = self.identity(number)
        contents = ContentStore(Path(self.nodes[number]["store"]) / "content")

        def answer(action: str, envelope: Envelope) -> Envelope:
            given = node.handle(NodeConfig.read(self.nodes[number]), action, envelope)
            return self.alter(number, envelope, given)

        made = MqttNode(link, identity, answer, contents, number=lambda: process)
        self.running[number] = _Running(identity, made, link, process)

    def stop(self, number: int) -> None:
        """End a node's process; the broker says that it is offline."""
        found = self.running.pop(number, None)
        if found is not None:
            found.link.close()
            self.broker.publish(Topics().presence(found.identity), b"", None, True)

    def work(self) -> None:
        for running in list(self.running.values()):
            while running.node.work(0):
                pass
