"""Flower's Grid and nodes in this process: the real ClientApp answers, and what a network can do is done on purpose."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from refprotofl.engines.flower import node
from refprotofl.engines.flower.client_app import app
from refprotofl.engines.flower.messages import Envelope, unwrap, wrap

GONE = 5  # Flower's code for a node that is not there

# What becomes of a message to a node: "", "lost", "gone", "deaf", "slow", "twice" or "unknown" (to Flower).
Fate = Callable[[int, Message], str]


@dataclass
class MemoryGrid(Grid):
    """`nodes`: the config of each node by its number. `fate` is asked for every message to one of ours."""

    nodes: dict[int, dict[str, Any]]
    names: dict[int, str] = field(default_factory=dict)
    fate: Fate = lambda number, message: ""
    told: Callable[[int, Envelope, Envelope], Envelope] = lambda number, request, answer: answer  # what a node says instead
    replies: dict[str, Message] = field(default_factory=dict)
    asked: list[tuple[int, str]] = field(default_factory=list)
    valid: list[float] = field(default_factory=list)  # the seconds that each message may wait
    looks: dict[str, int] = field(default_factory=dict)  # how often a slow reply is still looked for in vain

    def __post_init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1  # as in a ServerApp's process

    def set_run(self, run: Run) -> None: ...

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(self, *given: Any, **more: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=number, name=self.names.get(number, f"node-{number}")) for number in self.nodes]

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
        self.asked.append((number, message.metadata.message_type))
        self.valid.append(message.metadata.ttl)
        fate = self.fate(number, message)
        if fate == "unknown":
            return ""
        if fate == "gone" or number not in self.nodes:
            self.replies[identity] = Message(Error(GONE, "no such node"), reply_to=message)
        elif fate != "lost":
            context = Context(1, number, dict(self.nodes[number]), RecordDict(), {})
            answer = app(message, context)
            if fate == "slow":
                self.looks[identity] = 5
            if fate == "twice":
                answer = app(message, context)
            if fate != "deaf":
                said = self.told(number, unwrap(message.content), unwrap(answer.content))
                self.replies[identity] = Message(wrap(said), reply_to=message)
        return identity


def restart_nodes() -> None:
    """What a node knows beyond its disk is gone."""
    node._host.cache_clear()
