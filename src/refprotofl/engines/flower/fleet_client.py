"""A node's connection to a SuperLink: the requests that Flower's SuperNode makes, without its processes per message."""

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import fab_from_proto, message_to_proto, run_from_proto
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    pull_objects,
    push_objects,
)
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from refprotofl.deploy.transport import Envelope, Unreadable
from refprotofl.engines.flower.records import inflate, wrap

ALIVE = 30.0  # seconds, at least, between heartbeats as announced; a node that misses two counts as offline
BEAT = 0.7  # share of ALIVE after which a node reports again

Answer = TypeVar("Answer")


class Again(Protocol):
    """Repeats a request while the link is down, and returns what it gave in the end."""

    def __call__(self, do: Callable[[], Answer], /) -> Answer: ...


class FleetClient:
    """`authority`: the PEM of the site's CA; None without TLS, where a node registers its key itself.

    `look_every`: the longest pause between two looks for work; a long one also makes heartbeats rare.
    """

    def __init__(
        self, address: str, authority: bytes | None, key: ec.EllipticCurvePrivateKey, look_every: float = 0.0
    ) -> None:
        self._alive = max(ALIVE, 2 * look_every)
        self._key = public_key_to_bytes(key.public_key())
        self._registers = authority is None
        self._client = FleetHttpClient.from_server_address(
            address,
            authority is None,
            authority,
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(key, key.public_key()),
            ],
        )
        self._node = Node()
        self._end = threading.Event()

    def activate(self) -> None:
        """Come online; httpx.HTTPStatusError if the key is not admitted (401) or online already."""
        if self._registers:
            self._client.RegisterNode(RegisterNodeFleetRequest(public_key=self._key))
        found = self._client.ActivateNode(ActivateNodeRequest(public_key=self._key, heartbeat_interval=self._alive))
        self._node = Node(node_id=found.node_id)
        threading.Thread(target=self._keep_alive, daemon=True).start()

    def _keep_alive(self) -> None:
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=self._alive)
        while not self._end.wait(BEAT * self._alive):
            try:
                self._client.SendNodeHeartbeat(request)
            except (httpx.HTTPError, RuntimeError):
                continue  # the loop that asks for messages finds out what is wrong

    def close(self) -> None:
        """Go offline, as far as the server can be reached."""
        self._end.set()
        try:
            if self._node.node_id:
                self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))
        except (httpx.HTTPError, RuntimeError):
            pass
        self._client.close()

    def pull(self, again: Again) -> Message | None:
        """Return the next message for this node, whole; None if there is none.

        The server gives it out once: its parts are asked for `again` while the link is down.
        """
        found = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not found.messages_list:
            return None
        identity, run = found.messages_list[0].metadata.message_id, found.messages_list[0].metadata.run_id
        objects = [tree.object_id for tree in iterate_object_tree(found.message_object_trees[0])]
        pull_object = make_pull_object_fn_protobuf(self._client.PullObject, self._node, run)
        try:
            contents = again(lambda: pull_objects(objects, pull_object))
        except ObjectPullError:
            return None  # its run has ended meanwhile
        received = ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=identity)
        again(lambda: self._client.ConfirmMessageReceived(received))
        try:
            message = inflate(identity, contents)
        except Unreadable:
            return None  # nothing that could be answered
        message.metadata.__dict__["_message_id"] = identity
        return message

    def reply(self, message: Message, envelope: Envelope, again: Again) -> bool:
        """Send a message's answer, `again` while the link is down; return whether it was taken."""
        answer = Message(wrap(envelope), reply_to=message)
        with no_object_id_recompute():
            answer.metadata.__dict__["_message_id"] = answer.object_id
            try:
                again(lambda: self._push(answer))
            except ObjectPushError:
                return False
        return True

    def _push(self, answer: Message) -> None:
        objects, run = get_all_nested_objects(answer), answer.metadata.run_id
        pushed = self._client.PushMessages(
            PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(answer))],
                message_object_trees=[get_object_tree(answer)],
            )
        )
        push_objects(
            objects,
            make_push_object_fn_protobuf(self._client.PushObject, self._node, run, pushed.session_id),
            object_ids_to_push=set(pushed.objects_to_push),
        )

    def bundle(self, run: int) -> bytes:
        """Return the app of a run, as it was submitted."""
        found = run_from_proto(self._client.GetRun(GetRunRequest(node=self._node, run_id=run)).run)
        request = GetFabRequest(node=self._node, hash_str=found.fab_hash, run_id=run)
        content: bytes = fab_from_proto(self._client.GetFab(request).fab).content
        return content
