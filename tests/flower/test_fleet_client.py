"""A node's connection: how often it says that it is there, and what becomes of a message while the link breaks."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesResponse, PushMessagesResponse
from flwr.proto.message_pb2 import PullObjectResponse, PushObjectResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient

from refprotofl.deploy.transport import Envelope
from refprotofl.engines.flower import fleet_client
from refprotofl.engines.flower.fleet_client import FleetClient
from refprotofl.engines.flower.records import unwrap, wrap

KEY = ec.generate_private_key(ec.SECP384R1())


class FakeServer:
    """The requests of a node as a SuperLink answers them; `broken` counts the requests that the link still loses."""

    def __init__(self, message: Message | None = None) -> None:
        self.activations: list[Any] = []
        self.heartbeats: list[Any] = []
        self.confirmed: list[str] = []
        self.pushed: dict[str, bytes] = {}
        self.trees: list[Any] = []
        self.message, self.pulls, self.broken, self.ended = message, 0, 0, False
        self.beat = threading.Event()
        self.closed = False

    def _lose(self) -> None:
        if self.broken:
            self.broken -= 1
            raise httpx.ReadError("lost")

    def ActivateNode(self, request: Any) -> Any:
        self.activations.append(request)
        return SimpleNamespace(node_id=7)

    def SendNodeHeartbeat(self, request: Any) -> None:
        self.heartbeats.append(request)
        self.beat.set()

    def DeactivateNode(self, request: Any) -> None:
        raise httpx.ConnectError("no")

    def PullMessages(self, request: Any) -> PullMessagesResponse:
        """Given out once, as by Flower."""
        self.pulls += 1
        message, self.message = self.message, None
        if message is None:
            return PullMessagesResponse()
        self.objects = {name: one.deflate() for name, one in get_all_nested_objects(message).items()}
        return PullMessagesResponse(
            messages_list=[message_to_proto(message)], message_object_trees=[get_object_tree(message)]
        )

    def PullObject(self, request: Any) -> PullObjectResponse:
        self._lose()
        if self.ended:
            return PullObjectResponse(object_found=False)
        content = self.objects[request.object_id]
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> None:
        self._lose()
        self.confirmed.append(request.message_object_id)

    def PushMessages(self, request: Any) -> PushMessagesResponse:
        self._lose()
        self.trees = [one.object_id for one in request.message_object_trees]
        names = [child for tree in request.message_object_trees for child in _names(tree)]
        return PushMessagesResponse(objects_to_push=names, session_id="s")

    def PushObject(self, request: Any) -> PushObjectResponse:
        self.pushed[request.object_id] = request.object_content
        return PushObjectResponse(stored=not self.ended)

    def close(self) -> None:
        self.closed = True


def _names(tree: Any) -> list[str]:
    return [tree.object_id, *(name for child in tree.children for name in _names(child))]


Connect = Callable[..., FleetClient]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    def made(server: FakeServer, look_every: float = 0.0) -> FleetClient:
        monkeypatch.setattr(FleetHttpClient, "from_server_address", lambda *given, **more: server)
        return FleetClient("127.0.0.1:1", b"ca", KEY, look_every)

    return made


def asked() -> Message:
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    message = Message(wrap(Envelope({"round": 2}, b"x" * 1000)), dst_node_id=7, message_type="query.ask")
    message.metadata.__dict__["_message_id"] = message.object_id
    return message


def again(do: Callable[[], Any]) -> Any:
    while True:
        try:
            return do()
        except httpx.TransportError:
            continue


@pytest.mark.parametrize(("look_every", "seconds"), [(0.1, 30), (15, 30), (60, 120), (600, 1200)])
def test_a_node_that_looks_less_often_says_less_often_that_it_is_there(
    connect: Connect, look_every: float, seconds: float
) -> None:
    server = FakeServer()
    client = connect(server, look_every)
    client.activate()
    assert [one.heartbeat_interval for one in server.activations] == [seconds]
    client.close()


def test_a_node_says_that_it_is_there_until_it_is_closed(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_client, "BEAT", 0.001)
    server = FakeServer()
    client = connect(server)
    client.activate()
    assert server.beat.wait(60)
    client.close()  # the server cannot be reached any more: that is no error
    assert server.closed
    time.sleep(0.2)
    before = len(server.heartbeats)
    time.sleep(0.2)
    assert len(server.heartbeats) == before


def test_a_message_whose_parts_are_lost_on_the_way_is_asked_for_again_and_read_whole(connect: Connect) -> None:
    server = FakeServer(asked())
    client = connect(server)
    client.activate()
    server.broken = 3
    found = client.pull(again)
    assert found is not None
    assert unwrap(found.content) == Envelope({"round": 2}, b"x" * 1000)
    assert (server.broken, server.pulls, len(server.confirmed)) == (0, 1, 1)
    assert client.pull(again) is None


def test_a_message_of_a_run_that_has_ended_is_left_alone(connect: Connect) -> None:
    server = FakeServer(asked())
    client = connect(server)
    client.activate()
    server.ended = True
    assert client.pull(again) is None
    assert server.confirmed == []


@pytest.mark.parametrize("ended", [False, True])
def test_an_answer_is_sent_with_the_same_bytes_until_it_is_through(connect: Connect, ended: bool) -> None:
    server = FakeServer(asked())
    client = connect(server)
    client.activate()
    message = client.pull(again)
    assert message is not None
    server.broken, server.ended = 2, ended
    assert client.reply(message, Envelope({"code": None}, b"answer"), again) is not ended
    assert server.broken == 0
    assert set(server.trees) <= set(server.pushed) or ended
