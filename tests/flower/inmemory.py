"""Flower's Grid and nodes in this process: the real node code answers, and a network's faults happen on purpose."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from flwr.app import Error, Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid as FlowerGrid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from tests.deployments import FIRST, Grid

from refprotofl.deploy import node
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.deploy.transport import Envelope, Sending
from refprotofl.engines.flower.grid_transport import FlowerTransport
from refprotofl.engines.flower.records import unwrap, wrap

GONE = 5  # Flower's code for a node that is not there


@dataclass
class MemoryGrid(Grid, FlowerGrid):
    """Nodes over Flower's Grid."""

    replies: dict[str, Message] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)  # how often a slow reply is still looked for in vain

    def __post_init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1  # as in a run's process

    def connect(self) -> FlowerTransport:
        return FlowerTransport(self, lambda seconds: None)

    def set_run(self, run: Run) -> None: ...

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(self, *given: Any, **more: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [self._info(number) for number in self.nodes]

    def _info(self, number: int) -> NodeInfo:
        name = self.names.get(number, f"node-{number - FIRST}")
        key = self.keys.get(number, f"key of {name}".encode() if name else b"")
        return NodeInfo(node_id=number, name=name, public_key=key)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [self._deliver(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = list(message_ids)
        for one in wanted:
            self.looks[one] = self.looks.get(one, 0) - 1
        return [self.replies.pop(one) for one in wanted if one in self.replies and self.looks[one] < 0]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError

    def _deliver(self, message: Message) -> str:
        identity, number = uuid4().hex, message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = identity
        self.valid.append(message.metadata.ttl)
        action = message.metadata.message_type.partition(".")[2]
        sending = Sending(number, action, unwrap(message.content), message.metadata.group_id, message.metadata.ttl)
        self.asked.append((number, action))
        fate = self.fate(number, sending)
        if fate == "unknown":
            return ""
        if fate == "gone" or number not in self.nodes:
            self.replies[identity] = Message(Error(GONE, "no such node"), reply_to=message)
        elif fate != "lost":
            answer = self._answer(number, message)
            if fate == "slow":
                self.looks[identity] = 5
            if fate == "twice":
                answer = self._answer(number, message)
            if fate != "deaf":
                said = self.alter(number, unwrap(message.content), answer)
                self.replies[identity] = Message(wrap(said), reply_to=message)
        return identity

    def _answer(self, number: int, message: Message) -> Envelope:
        action = message.metadata.message_type.partition(".")[2]
        answer = node.handle(NodeConfig.read(self.nodes[number]), action, unwrap(message.content))
        return unwrap(wrap(answer))
