"""The server's side over MQTT: large payloads, lost sessions, and what hostile nodes send."""

from pathlib import Path
from random import Random

import pytest
from tests.mqtt.inmemory import MemoryBroker, MemoryLink

from refprotofl.deploy.transport import Envelope, Node, Reply, Sending
from refprotofl.engines.mqtt import frames
from refprotofl.engines.mqtt.frames import PART, PAYLOAD_PART, Announced
from refprotofl.engines.mqtt.link import Topics
from refprotofl.engines.mqtt.node import MqttNode
from refprotofl.engines.mqtt.parts import ContentStore
from refprotofl.engines.mqtt.transport import NOISE, MqttTransport

LARGE = Random(0).randbytes(5_000_000)
NODE = "aaaaaaaaaaaaaaaa"


class Pair:
    """A server and a node that returns the payload that it gets, or `answer`."""

    def __init__(self, folder: Path, broker: MemoryBroker | None = None) -> None:
        self.broker = broker or MemoryBroker()
        self.folder, self.answer, self.asked = folder, b"", 0
        self.cut: list[str] = []
        self.said: list[str] = []
        self.now = 0.0
        self.link = MemoryLink(self.broker)
        self.server = MqttTransport(
            self.link,
            lambda: {NODE: Node(0, "key", "node-0")},
            10_000_000,
            cut=self.cut.append,
            warn=self.said.append,
            clock=lambda: self.now,
        )
        self.start_node()

    def start_node(self) -> None:
        self.node_link = MemoryLink(self.broker)
        contents = ContentStore(self.folder / "store" / "content")
        self.node = MqttNode(self.node_link, NODE, self._answer, contents, clock=lambda: self.now)

    def _answer(self, action: str, envelope: Envelope) -> Envelope:
        self.asked += 1
        return Envelope({"state": "f" * 64}, self.answer or envelope.payload)

    def push(self, payload: bytes, header: dict[str, str] | None = None) -> str:
        (node,) = self.server.nodes()
        (identity,) = self.server.push([Sending(node.number, "ask", Envelope(header or {"verb": "train"}, payload))])
        return identity

    def reply(self, identity: str) -> Reply | None:
        """Return the reply that has come after some looks of both sides."""
        for _ in range(50):
            while self.node.work(0):
                pass
            found = self.server.pull([identity])
            if found:
                return found[identity]
            self.now += 5.0
        return None

    def parts(self) -> int:
        """Return how many parts of payloads have crossed."""
        said = [data for topic, data in self.broker.crossed if data and not Topics().is_presence(topic)]
        return sum(data[0] & 7 == PAYLOAD_PART for data in said)

    def say(self, frame: frames.Frame | bytes, session: bytes | None = None) -> None:
        """Send something as the node."""
        data = frame if isinstance(frame, bytes) else frame.encode()
        self.node_link.publish(Topics().up(NODE, (session or self.server._session).hex()), data)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def payload_of(reply: Reply | None) -> bytes:
    assert reply is not None
    assert reply.envelope is not None
    return reply.envelope.payload


def test_a_large_payload_goes_there_and_comes_back(pair: Pair) -> None:
    assert payload_of(pair.reply(pair.push(LARGE))) == LARGE
    assert pair.parts() == 2 * -(-len(LARGE) // PART)


def test_a_payload_that_a_node_has_is_not_sent_again(pair: Pair) -> None:
    pair.answer = b"small"
    assert payload_of(pair.reply(pair.push(LARGE))) == b"small"
    before = pair.parts()
    pair.node_link.close()
    pair.start_node()  # another process, with the same store
    assert payload_of(pair.reply(pair.push(LARGE))) == b"small"
    assert pair.parts() == before


class Breaking(MemoryBroker):
    """Loses, repeats and reorders parts: of every ten, one comes late, one twice, and one never."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.late: list[bytes] = []

    def copies(self, topic: str, data: bytes) -> list[bytes]:
        if not data or Topics().is_presence(topic) or data[0] & 7 != PAYLOAD_PART:
            return [data]
        self.count += 1
        if self.count % 10 == 3:
            self.late.append(data)
            return []
        if self.count % 10 == 5 and self.late:
            return [data, self.late.pop()]
        return {7: [data, data], 9: []}.get(self.count % 10, [data])


def test_a_broker_that_loses_repeats_and_reorders_parts_changes_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path, Breaking())
    assert payload_of(pair.reply(pair.push(LARGE[:3_000_000]))) == LARGE[:3_000_000]
    assert pair.asked == 1


def test_requests_refer_to_the_last_exchange_and_are_sent_whole_where_the_node_has_forgotten_it(pair: Pair) -> None:
    header = {"verb": "train", "base": Random(0).randbytes(32).hex()}
    pair.reply(pair.push(b"x", header))
    pair.broker.crossed.clear()
    pair.reply(pair.push(b"y", header))
    (request,) = [data for topic, data in pair.broker.crossed if "/d/" in topic]
    assert len(request) < 30
    pair.node._known.clear()
    assert payload_of(pair.reply(pair.push(b"z", header))) == b"z"


def test_a_lost_session_of_the_server_gives_back_what_was_under_way(pair: Pair) -> None:
    identity = pair.push(b"x")
    pair.link.connected(False)
    assert pair.server.pull([identity])[identity].gone
    assert pair.server.nodes() == []  # until the broker says who is there
    pair.node_link.connected(False)
    assert payload_of(pair.reply(pair.push(b"y"))) == b"y"


def test_a_node_whose_session_was_lost_has_another_number(pair: Pair) -> None:
    (before,) = pair.server.nodes()
    pair.node_link.connected(True)
    assert pair.server.nodes() == [before]
    pair.node_link.connected(False)
    assert pair.server.nodes()[0].number != before.number
    assert pair.server.push([Sending(before.number, "ask", Envelope({}))]) == [""]


def test_an_expired_request_is_not_worked_on(pair: Pair) -> None:
    (node,) = pair.server.nodes()
    pair.server.push([Sending(node.number, "ask", Envelope({}), valid=10.0)])
    pair.now = 11.0
    while pair.node.work(0):
        pass
    assert pair.asked == 0


def test_an_answer_that_is_too_large_costs_its_sender_its_turn(pair: Pair) -> None:
    identity = pair.push(b"x")
    pair.say(frames.Reply(1, frames.compress(b"{}"), Announced(bytes(32), 10_000_001)))
    reply = pair.server.pull([identity])[identity]
    assert (reply.envelope, reply.gone) == (None, False)
    assert pair.said == ["An answer of node-0 was refused: it has 10,000,001 bytes, above max-message = 10,000,000."]


def test_an_answer_that_its_sender_no_longer_has_is_asked_for_again(pair: Pair) -> None:
    identity = pair.push(b"x")
    pair.say(frames.Reply(1, frames.compress(b"{}"), Announced(bytes(32), 1_000_000)))
    assert pair.server.pull([identity])[identity].gone  # this look fetches it; the node does not have it


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x01\x05\x00", b"\x07" * 100, bytes(300_000)], ids=range(5))
def test_invalid_messages_answer_nothing(pair: Pair, data: bytes) -> None:
    identity = pair.push(b"x")
    pair.say(data)
    assert payload_of(pair.reply(identity)) == b"x"


def test_a_header_that_is_no_header_costs_the_turn(pair: Pair) -> None:
    identity = pair.push(b"x")
    pair.say(frames.Reply(1, b"\x00\x01\x02", b""))
    assert pair.server.pull([identity])[identity].envelope is None


def test_a_node_that_floods_the_server_is_cut_off_for_a_while(pair: Pair) -> None:
    identity = pair.push(b"x")
    for _ in range(10_000):
        pair.say(frames.Reply(99, b"", b""))
    assert pair.cut == [NODE]
    assert pair.said == ["Node node-0 sends unrequested messages: it is cut off for a minute."]
    assert pair.server.pull([identity])[identity].envelope is None
    assert pair.server._noise[NODE] == NOISE + 1


def test_a_node_cannot_fetch_a_payload_again_and_again(pair: Pair) -> None:
    pair.push(LARGE)
    key = frames.announce(LARGE).key
    for _ in range(1000):
        pair.say(frames.Want(pair.server._session, key, 0, 16))
    assert pair.parts() < 5 * (len(LARGE) // PART + 16)
