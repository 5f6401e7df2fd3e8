"""A node with a valid certificate that does on its own topic whatever it can."""

import threading
from pathlib import Path

from refprotofl.deploy.admission import fingerprint, read_public_key
from refprotofl.deploy.headers import PROTOCOL
from refprotofl.deploy.kits import AUTHORITY, KEY, REQUEST
from refprotofl.deploy.site import broker_user
from refprotofl.deploy.transport import Envelope
from refprotofl.engines.mqtt import frames
from refprotofl.engines.mqtt.client import Identity, PahoLink
from refprotofl.engines.mqtt.identities import CERTIFICATE
from refprotofl.engines.mqtt.link import Connected, Deliver, Topics
from refprotofl.engines.mqtt.node import MqttNode
from refprotofl.engines.mqtt.parts import ContentStore

FLOOD = 4_000  # messages after each request
OVERSIZED = b"\0" * 400_000  # more than the broker takes in a packet: it ends the connection
ENDLESS = frames.Reply(1, b"", frames.Announced(b"\1" * 32, 10**12)).encode()  # a terabyte


class _Tapped:
    """A link that remembers where the last answer went."""

    def __init__(self, link: PahoLink) -> None:
        self._link = link
        self.topic = ""

    def open(self, subscriptions: list[str], deliver: Deliver, connected: Connected) -> None:
        self._link.open(subscriptions, deliver, connected)

    def publish(self, topic: str, data: bytes, valid: float | None = None, *, retain: bool = False) -> None:
        if not retain:
            self.topic = topic
        self._link.publish(topic, data, valid, retain=retain)

    def close(self) -> None:
        self._link.close()


class Hostile:
    """Answers greetings as a node would, and requests with a flood."""

    def __init__(self, kit: Path, port: int) -> None:
        identity = broker_user(fingerprint(read_public_key(kit / REQUEST)))
        files = Identity(kit / AUTHORITY, kit / CERTIFICATE, kit / KEY)
        self._link = _Tapped(PahoLink(("127.0.0.1", port), files, identity, will=Topics().presence(identity)))
        self._node = MqttNode(self._link, identity, self._answer, ContentStore(kit / "hostile"))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        self.sent = 0

    def _work(self) -> None:
        while not self._ended.is_set():
            self._node.work(0.2)

    def _answer(self, action: str, envelope: Envelope) -> Envelope:
        if action == "hello":
            return Envelope({"protocol": PROTOCOL, "name": "node-2"})
        if action != "ask":
            return Envelope({"code": None})
        foreign = frames.Part(b"\2" * frames.KEY, 7, b"x" * frames.PART).encode()
        for number in range(FLOOD):
            self._link.publish(self._link.topic, (b"\xff garbage", ENDLESS, foreign)[number % 3], 30.0)
        self.sent += FLOOD
        self._link.publish(self._link.topic, OVERSIZED)
        return Envelope({"run": "x" * 32}, b"garbage")

    def close(self) -> None:
        self._ended.set()
        self._thread.join(30)
        self._node.go_offline()
        self._link.close()
