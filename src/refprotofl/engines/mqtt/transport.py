"""Envelopes over MQTT: requests are pushed to nodes; large payloads and large answers are fetched in parts."""

import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from refprotofl.core import for_terminal
from refprotofl.deploy.transport import Envelope, Node, Reply, Sending, Unreadable
from refprotofl.engines.mqtt import frames
from refprotofl.engines.mqtt.frames import INLINE, Announced, Body, announce
from refprotofl.engines.mqtt.link import Link, Topics
from refprotofl.engines.mqtt.parts import Incoming, MemorySink, parts_of

LONGEST = 1.0  # seconds of a rest in which nothing arrives
FETCHED = 8  # answers that are fetched in parts at a time
SERVED = 4  # times that a node may fetch the parts of one request
NOISE, MINUTE = 200, 60.0  # messages without a use that a node may send in so many seconds
FORGOTTEN = 60.0  # seconds after its time that an exchange is forgotten

Names = Callable[[], Mapping[str, Node]]  # by its user name at the broker: each admitted node, its number left open


@dataclass(eq=False)
class _Exchange:
    """A request on its way, and its answer."""

    identity: str
    number: int
    node: str
    sending: Sending
    body: Body
    until: float
    header: bytes  # the request's
    dictionary: bytes = b""
    back: int = 0
    served: int = 0
    answer: bytes = b""  # the header's text
    incoming: Incoming | None = None


@dataclass(eq=False)
class _Peer:
    """A node: the number of its process, and its exchanges."""

    online: int | None = None
    exchanges: dict[int, _Exchange] = field(default_factory=dict)  # under way, by number
    known: tuple[int, bytes] | None = None  # the last exchange that it answered, and the headers of both sides
    session: int = 0  # its process then


class MqttTransport:
    """A server's side. `most`: bytes of the largest answer; `warn` is called with a sentence for the operator.

    `cut` ends the connection of a node that sends more than it may.
    """

    def __init__(
        self,
        link: Link,
        names: Names,
        most: int,
        *,
        topics: Topics | None = None,
        cut: Callable[[str], None] = lambda node: None,
        warn: Callable[[str], None] = lambda sentence: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link, self._names, self._most, self._clock = link, names, most, clock
        self._cut, self._warn = cut, warn
        self._topics = topics or Topics()
        self._session = secrets.token_bytes(4)
        self._changed = threading.Condition(threading.RLock())
        self._news = False
        self._peers: dict[str, _Peer] = {}
        self._under_way: dict[str, _Exchange] = {}
        self._ended: deque[_Exchange] = deque(maxlen=4096)
        self._announced: dict[str, _Exchange] = {}  # answered, and their payload is still to be fetched
        self._replies: dict[str, Reply] = {}
        self._issued = 0
        self._noise: Counter[str] = Counter()
        self._noise_since = clock()
        subscriptions = [self._topics.presence("+"), self._topics.up("+", self._session.hex())]
        link.open(subscriptions, self._deliver, self._connected)

    def nodes(self) -> list[Node]:
        names = self._names()
        with self._changed:
            self._forget_old()
            found = [(node, peer.online) for node, peer in self._peers.items() if peer.online is not None]
        return [
            Node(number, names[node].identity, names[node].name) if node in names else Node(number, node, "")
            for node, number in sorted(found)
        ]

    def push(self, sendings: Sequence[Sending]) -> list[str]:
        with self._changed:
            online = {peer.online: node for node, peer in self._peers.items() if peer.online is not None}
            announced: dict[int, Announced] = {}
            return [self._push(online.get(one.node), one, announced) for one in sendings]

    def _push(self, node: str | None, sending: Sending, announced: dict[int, Announced]) -> str:
        if node is None or self._noise[node] > NOISE:
            return ""
        self._issued += 1
        payload = sending.envelope.payload
        body: Body = payload
        if len(payload) > INLINE:
            if id(payload) not in announced:  # one that goes to many is digested once
                announced[id(payload)] = announce(payload)
            body = announced[id(payload)]
        exchange = _Exchange(
            f"{self._session.hex()}-{self._issued}",
            self._issued,
            node,
            sending,
            body,
            self._clock() + sending.valid,
            frames.header_text(sending.envelope.header),
        )
        peer = self._peers[node]
        if peer.known is not None and peer.session == peer.online:
            exchange.back, exchange.dictionary = self._issued - peer.known[0], peer.known[1]
        peer.exchanges[exchange.number] = exchange
        self._under_way[exchange.identity] = exchange
        self._send(exchange)
        return exchange.identity

    def _send(self, exchange: _Exchange) -> None:
        compressed = frames.compress(exchange.header, exchange.dictionary)
        request = frames.Request(
            self._session, exchange.number, exchange.sending.action, exchange.back, compressed, exchange.body
        )
        self._publish(exchange, request)

    def _publish(self, exchange: _Exchange, frame: frames.Frame) -> None:
        left = max(1.0, exchange.until - self._clock())
        self._link.publish(self._topics.down(exchange.node), frame.encode(), left)

    def pull(self, ids: Iterable[str]) -> dict[str, Reply]:
        wanted = list(ids)
        with self._changed:
            self._fetch(wanted)
            self._news = False
            return {identity: self._replies.pop(identity) for identity in wanted if identity in self._replies}

    def rest(self, most: float | None = None) -> None:
        """Wait until something arrives."""
        with self._changed:
            if not self._news:
                self._changed.wait(LONGEST if most is None else max(0.0, min(LONGEST, most)))

    def _fetch(self, wanted: list[str]) -> None:
        """Fetch the payloads of some of the wanted answers, and ask again for parts that do not come."""
        active = [one for one in self._announced.values() if one.incoming is not None]
        for exchange in active:
            if exchange.incoming is not None and exchange.incoming.stalled:
                self._ask(exchange, exchange.incoming.begin())
        for exchange in [self._announced[one] for one in wanted if one in self._announced]:
            if exchange.incoming is not None or len(active) >= FETCHED:
                continue
            assert isinstance(exchange.body, Announced)
            exchange.incoming = Incoming(exchange.body, MemorySink(), self._session, self._clock)
            active.append(exchange)
            self._ask(exchange, exchange.incoming.begin())

    def _ask(self, exchange: _Exchange, want: frames.Want | None) -> None:
        if want is not None:
            self._publish(exchange, want)

    def _connected(self, kept: bool) -> None:
        """Note that a connection is there; without its session, what was under way may be lost."""
        with self._changed:
            if not kept:
                for exchange in list(self._under_way.values()):
                    self._end(exchange, Reply(gone=True, reason="the broker lost the session"))
                for peer in self._peers.values():
                    peer.online = None  # the broker says again who is there
            self._wake()

    def _deliver(self, topic: str, data: bytes, valid: float | None, retained: bool) -> None:
        node = self._topics.node_of(topic)
        with self._changed:
            if self._topics.is_presence(topic):
                self._see(node, data)
            elif not retained and self._noise[node] <= NOISE:
                self._hear(node, data)

    def _see(self, node: str, data: bytes) -> None:
        peer = self._peers.setdefault(node, _Peer())
        peer.online = int.from_bytes(data) if len(data) == 8 else None
        self._wake()

    def _hear(self, node: str, data: bytes) -> None:
        peer = self._peers.get(node)
        if peer is None or len(data) > frames.PACKET:
            return
        try:
            used = self._take(peer, frames.read_frame(data))
        except Unreadable:
            used = False
        if not used:
            self._count_noise(node)

    def _take(self, peer: _Peer, frame: frames.Frame) -> bool:
        """Return whether a node's message answers something."""
        if isinstance(frame, frames.Reply):
            exchange = peer.exchanges.get(frame.exchange)
            return exchange is not None and not exchange.answer and self._answered(peer, exchange, frame)
        if isinstance(frame, frames.Want):
            return self._serve(peer, frame)
        if isinstance(frame, frames.Part):
            return self._take_part(peer, frame)
        if isinstance(frame, frames.NeedsHeader):
            exchange = peer.exchanges.get(frame.exchange)
            if exchange is None or not exchange.back:
                return False
            exchange.back, exchange.dictionary = 0, b""
            self._send(exchange)
            return True
        if isinstance(frame, frames.Missing):
            found = [one for one in peer.exchanges.values() if one.incoming and one.incoming.what.key == frame.key]
            for exchange in found:
                self._end(exchange, Reply(gone=True, reason="the node no longer has its answer"))
            return bool(found)
        return False

    def _answered(self, peer: _Peer, exchange: _Exchange, frame: frames.Reply) -> bool:
        try:
            exchange.answer = frames.decompress(frame.header, exchange.header)
            header = frames.read_header(exchange.answer)
        except Unreadable as problem:
            self._end(exchange, Reply(reason=str(problem)))
            return True
        peer.known, peer.session = (exchange.number, exchange.header + exchange.answer), peer.online or 0
        if isinstance(frame.body, bytes):
            self._end(exchange, Reply(Envelope(header, frame.body)))
        elif frame.body.size > self._most:
            self._warn(
                f"An answer of {self._label(exchange.node)} was refused: it has {frame.body.size:,} bytes, above "
                f"max-message = {self._most:,}."
            )
            self._end(exchange, Reply(reason="its payload is too large"))
        else:
            exchange.body = frame.body
            self._announced[exchange.identity] = exchange
            self._wake()
        return True

    def _serve(self, peer: _Peer, want: frames.Want) -> bool:
        for exchange in peer.exchanges.values():
            body = exchange.body
            if exchange.answer or not isinstance(body, Announced) or body.key != want.key:
                continue
            parts = list(parts_of(exchange.sending.envelope.payload, want))
            exchange.served += len(parts)
            if exchange.served > SERVED * (body.parts + 16):
                return False
            for part in parts:
                self._publish(exchange, part)
            return bool(parts)
        return False

    def _take_part(self, peer: _Peer, part: frames.Part) -> bool:
        for exchange in peer.exchanges.values():
            incoming = exchange.incoming
            if incoming is None or incoming.what.key != part.key:
                continue
            self._ask(exchange, incoming.take(part))
            if incoming.complete:
                try:
                    header = frames.read_header(exchange.answer)
                    self._end(exchange, Reply(Envelope(header, incoming.whole())))
                except Unreadable as problem:
                    self._end(exchange, Reply(reason=str(problem)))
            return True
        return False

    def _end(self, exchange: _Exchange, reply: Reply) -> None:
        self._drop(exchange)
        self._replies[exchange.identity] = reply
        self._ended.append(exchange)
        self._wake()

    def _drop(self, exchange: _Exchange) -> None:
        self._under_way.pop(exchange.identity, None)
        self._announced.pop(exchange.identity, None)
        self._peers[exchange.node].exchanges.pop(exchange.number, None)

    def _forget_old(self) -> None:
        """Forget exchanges whose answer is not awaited."""
        old = self._clock() - FORGOTTEN
        for exchange in [one for one in self._under_way.values() if one.until < old]:
            self._drop(exchange)
        while self._ended and self._ended[0].until < old:
            self._replies.pop(self._ended.popleft().identity, None)

    def _count_noise(self, node: str) -> None:
        """Count a message without a use; a node that sends too many is ignored for a while and cut off."""
        if self._clock() - self._noise_since > MINUTE:
            self._noise.clear()
            self._noise_since = self._clock()
        self._noise[node] += 1
        if self._noise[node] == NOISE + 1:
            self._warn(f"Node {self._label(node)} sends unrequested messages: it is cut off for a minute.")
            for exchange in list(self._peers[node].exchanges.values()):
                self._end(exchange, Reply(reason="its node sends unrequested messages"))
            self._cut(node)

    def _label(self, node: str) -> str:
        found = self._names().get(node)
        return for_terminal(found.name if found else node)

    def _wake(self) -> None:
        self._news = True
        self._changed.notify_all()
