"""Envelopes over Flower's Grid, without the seconds that Flower's own waiting takes."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import httpx
from flwr.app import Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from refprotofl.core import MachineError, for_terminal
from refprotofl.deploy.transport import Node, Reply, Sending, Unreadable
from refprotofl.engines.flower.records import Packed, pack, unwrap, wrap
from refprotofl.records import sha256

AT_ONCE = 16  # messages that are pushed or pulled by one call
CALLS = 16  # at a time: each takes several requests, which queue on a busy SuperLink
SHORTEST, LONGEST, GROWTH = 0.02, 1.0, 1.5  # seconds between two looks for replies
QUIET = 0.03  # seconds without a look for each call of the last one: a SuperLink has the nodes' requests to answer, too
UNTAKEN = 20  # messages in a row that a SuperLink may refuse before the run stops
KEPT = "Committed rounds are kept: continue with the same --out."
FINAL = (1, 2, 7)  # Flower's codes for an app that cannot be loaded or that raised: to ask again would not help

Thing = TypeVar("Thing")
Made = TypeVar("Made")


class Untaken(MachineError):
    """The SuperLink answered, and did not take what was sent."""


class FlowerTransport:
    def __init__(self, grid: Grid, pause: Callable[[float], None] = time.sleep) -> None:
        self._grid = grid
        self._pause = pause
        self._length = SHORTEST
        self._calls = 0  # of the last look
        self._untaken = 0  # messages in a row that the SuperLink did not take

    def nodes(self) -> list[Node]:
        return [_node(info) for info in _checked(self._grid.get_nodes)]

    def push(self, sendings: Sequence[Sending]) -> list[str]:
        first, others = sendings[:AT_ONCE], sendings[AT_ONCE:]  # payloads that came with the first are not sent again
        push_some = partial(self._push_some, _Packing())
        ids = [*push_some(first), *_in_parts(push_some, others)] if first else []
        self._length = SHORTEST
        self._untaken = 0 if any(ids) else self._untaken
        if self._untaken >= UNTAKEN:
            raise MachineError(f"The SuperLink takes no messages; its log says why. {KEPT}")
        return ids

    def _push_some(self, packing: "_Packing", sendings: Sequence[Sending]) -> list[str]:
        messages = [packing.message(one) for one in sendings]
        try:
            pushed = list(_checked(partial(self._grid.push_messages, messages)))
        except Untaken:  # because of one of them: the others are sent
            if len(sendings) > 1:
                return [one for each in sendings for one in self._push_some(packing, [each])]
            self._untaken += 1
            return [""]
        if len(pushed) != len(sendings):  # it is unknown which of them were taken; none is polled for
            return [""] * len(sendings)
        return [identity or "" for identity in pushed]

    def pull(self, ids: Iterable[str]) -> dict[str, Reply]:
        wanted = list(ids)
        self._calls = -(-len(wanted) // AT_ONCE)
        messages = _in_parts(lambda some: _checked(partial(self._grid.pull_messages, some)), wanted)
        found = {message.metadata.reply_to_message_id: _reply(message) for message in messages}
        if found:
            self._length = SHORTEST
        return found

    def rest(self, most: float | None = None) -> None:
        pause = max(self._length, QUIET * self._calls)
        self._pause(pause if most is None else max(0.0, min(pause, most)))
        self._length = min(LONGEST, GROWTH * self._length)


def _node(info: NodeInfo) -> Node:
    """Return a node, identified by its key: whether it has a place is decided by name and key."""
    return Node(info.node_id, sha256(info.public_key) if info.public_key else f"node {info.node_id}", info.name)


def _in_parts(do: Callable[[Sequence[Thing]], Iterable[Made]], things: Sequence[Thing]) -> list[Made]:
    """Return the results of calls on parts of a list, in order; several calls run at a time."""
    parts = [things[first : first + AT_ONCE] for first in range(0, len(things), AT_ONCE)]
    if len(parts) < 2:
        return [made for part in parts for made in do(part)]
    with ThreadPoolExecutor(min(CALLS, len(parts))) as pool:
        return [made for some in pool.map(do, parts) for made in some]


class _Packing:
    """Builds Flower messages; a payload sent to many nodes is stored once."""

    def __init__(self) -> None:
        self._last: tuple[bytes, Packed] | None = None

    def message(self, sending: Sending) -> Message:
        return Message(
            wrap(sending.envelope, self._packed(sending.envelope.payload)),
            dst_node_id=sending.node,
            message_type=f"query.{sending.action}",
            ttl=sending.valid,
            group_id=sending.group,
        )

    def _packed(self, payload: bytes) -> Packed:
        last = self._last
        if last is None or last[0] is not payload:
            self._last = last = payload, pack(payload)
        return last[1]


def _checked(call: Callable[[], Made]) -> Made:
    """Call Flower and turn its errors into ours; it has retried already while the SuperLink was away."""
    try:
        return call()
    except httpx.HTTPStatusError as problem:
        status = problem.response.status_code
        raise Untaken(f"The SuperLink refused a request (HTTP {status}); its log says why. {KEPT}") from None
    except httpx.HTTPError as problem:
        raise MachineError(
            f"The SuperLink does not answer ({type(problem).__name__}); its log says why. {KEPT}"
        ) from None


def _reply(message: Message) -> Reply:
    if message.has_error():
        return Reply(gone=message.error.code not in FINAL, reason=for_terminal((message.error.reason or "")[:200]))
    try:
        return Reply(unwrap(message.content))
    except Unreadable as problem:
        return Reply(reason=str(problem))
