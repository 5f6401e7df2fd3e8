"""A connection to a broker over TLS, by paho: it comes back by itself, after growing pauses that differ by node."""

import random
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from refprotofl.engines.mqtt.link import PACKET, Connected, Deliver

SHORTEST, LONGEST = 1.0, 60.0  # seconds of the first pause before connecting again, and of the longest
TWIN_PAUSE = 120.0  # seconds before a node connects again that another one with its certificate has replaced
IN_FLIGHT = 100  # messages that are sent and not acknowledged, in each direction
KEPT = 7 * 86_400  # seconds for which a broker keeps the session of a node that is offline
ROOM = 4096  # bytes of a packet beyond our largest message
TAKEN_OVER = 142  # MQTT's reason code for a connection that another one with the same name has replaced
KEEP_ALIVE = 60  # seconds of silence after which a client sends a ping

Say = Callable[[str], None]


@dataclass(frozen=True)
class Identity:
    """The files of a TLS client: the authority that it trusts, its certificate and its key."""

    authority: Path
    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(str(self.authority))
        context.load_cert_chain(str(self.certificate), str(self.key))
        return context


class _Client(Client):
    """Keeps the reason why a connection did not come about, and uses the newest certificate for each."""

    identity: Identity
    context: ssl.SSLContext
    problem: OSError | None = None

    def reconnect(self) -> Any:
        self.problem = None
        with suppress(OSError):  # a certificate that was replaced meanwhile
            self.context.load_cert_chain(str(self.identity.certificate), str(self.identity.key))
        try:
            return super().reconnect()
        except OSError as problem:
            self.problem = problem
            raise


class PahoLink:
    """`name`: the client's at the broker. `will`: a topic that is emptied when the connection breaks."""

    def __init__(
        self,
        address: tuple[str, int],
        identity: Identity,
        name: str,
        *,
        will: str | None = None,
        keep_alive: int = KEEP_ALIVE,
        kept: int = KEPT,
        say: Say = lambda sentence: None,
    ) -> None:
        self._address, self._say, self._kept, self._keep_alive = address, say, kept, keep_alive
        self._last = ""
        client = self._client = _Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5)
        client.identity, client.context = identity, identity.context()
        client.tls_set_context(client.context)
        client.max_inflight_messages_set(IN_FLIGHT)
        client.reconnect_delay_set(*pauses())
        client.on_connect, client.on_connect_fail = self._on_connect, self._on_connect_fail
        client.on_disconnect, client.on_message = self._on_disconnect, self._on_message
        client.on_socket_open = self._on_socket_open
        if will is not None:
            client.will_set(will, b"", qos=1, retain=True)

    def open(self, subscriptions: list[str], deliver: Deliver, connected: Connected) -> None:
        self._subscriptions, self._deliver, self._connected = subscriptions, deliver, connected
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = self._kept
        properties.ReceiveMaximum = IN_FLIGHT
        properties.MaximumPacketSize = PACKET + ROOM
        host, port = self._address
        self._client.connect_async(host, port, self._keep_alive, properties=properties)
        self._start()

    def _start(self) -> None:
        """Serve the connection in a thread."""
        self._client.loop_start()

    def publish(self, topic: str, data: bytes, valid: float | None = None, *, retain: bool = False) -> None:
        properties = None
        if valid is not None:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.MessageExpiryInterval = max(1, round(valid))
        self._client.publish(topic, data, qos=1, retain=retain, properties=properties)

    def flush(self, seconds: float) -> None:
        """Wait until the broker has what was published, at most this long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and (self._client._out_messages or self._client.want_write()):
            time.sleep(0.02)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def connected(self) -> bool:
        return bool(self._client.is_connected())

    def _on_connect(
        self, client: Client, _: object, flags: ConnectFlags, reason: ReasonCode, __: Properties | None
    ) -> None:
        if reason.is_failure:
            self._report(f"The broker refuses the connection: {reason}. Trying again.")
            return
        self._client.reconnect_delay_set(*pauses())
        if not flags.session_present and self._subscriptions:
            options = SubscribeOptions(qos=1)
            client.subscribe([(topic, options) for topic in self._subscriptions])
        self._report(f"Connected to {self._address[0]}:{self._address[1]}.")
        self._connected(flags.session_present)

    def _on_connect_fail(self, client: Client, _: object) -> None:
        problem = self._client.problem
        self._report(f"Cannot reach {self._address[0]}:{self._address[1]} ({problem}). Trying again.")

    def _on_disconnect(
        self, client: Client, _: object, flags: DisconnectFlags, reason: ReasonCode, __: Properties | None
    ) -> None:
        if reason.value == TAKEN_OVER:
            self._client.reconnect_delay_set(TWIN_PAUSE * random.uniform(0.7, 1.3), 10 * TWIN_PAUSE)  # type: ignore[arg-type]
            self._report("Another node with the same certificate is online, or the server ended the connection.")
        elif reason.is_failure:
            self._report(f"The connection to {self._address[0]}:{self._address[1]} is lost ({reason}). Trying again.")

    def _on_message(self, client: Client, _: object, message: MQTTMessage) -> None:
        valid = getattr(message.properties, "MessageExpiryInterval", None) if message.properties else None
        self._deliver(message.topic, bytes(message.payload), valid, message.retain)

    def _on_socket_open(self, client: Client, _: object, opened: Any) -> None:
        with suppress(OSError, AttributeError):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _report(self, sentence: str) -> None:
        """Say a sentence, unless it was the last one."""
        if sentence != self._last:
            self._say(sentence)
        self._last = sentence


def pauses() -> tuple[Any, Any]:
    """Return the first pause before connecting again and the longest: they differ, lest all nodes come at once."""
    return SHORTEST * random.uniform(0.5, 2.0), LONGEST * random.uniform(0.7, 1.3)


class PacedLink:
    """A link that sends at most `rate` bytes per second, and only while `allowed` says so: its owner's limits."""

    def __init__(
        self,
        link: PahoLink,
        rate: int | None,
        allowed: Callable[[], bool],
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link, self._rate, self._allowed, self._pause, self._clock = link, rate, allowed, pause, clock
        self._waiting: deque[tuple[str, bytes, float | None]] = deque()
        self._more = threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def open(self, subscriptions: list[str], deliver: Deliver, connected: Connected) -> None:
        self._link.open(subscriptions, deliver, connected)

    def publish(self, topic: str, data: bytes, valid: float | None = None, *, retain: bool = False) -> None:
        if retain:  # that a node is there: a few bytes
            self._link.publish(topic, data, valid, retain=True)
            return
        until = None if valid is None else self._clock() + valid
        self._waiting.append((topic, data, until))
        self._more.release()

    def close(self) -> None:
        self._link.close()

    def _run(self) -> None:
        while True:
            self._more.acquire()
            topic, data, until = self._waiting.popleft()
            while not self._allowed():
                self._pause(1.0)
            left = None if until is None else until - self._clock()
            if left is not None and left <= 0:
                continue
            self._link.publish(topic, data, left)
            if self._rate:
                self._pause(len(data) / self._rate)
