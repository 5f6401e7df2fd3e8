"""Carries parcels over Flower's Grid, and looks for the replies without the seconds that its own waiting takes."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import httpx
from flwr.app import Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from refprotofl.basics.escapes import for_terminal
from refprotofl.engines.flower.parcels import Packed, Parcel, Unreadable, pack, unwrap, wrap
from refprotofl.errors import MachineError

AT_ONCE = 16  # messages that are pushed or pulled by one call
HANDS = 16  # calls at a time: each takes several requests, and on a SuperLink that many nodes ask each waits its turn
SHORTEST, LONGEST, GROWTH = 0.02, 1.0, 1.5  # seconds between two looks for replies
QUIET = 0.03  # seconds without a look for each call of the last one: a SuperLink has the nodes' requests to answer, too
FINAL = (1, 2, 7)  # Flower's codes for an app that cannot be loaded or that raised: to ask again would not help
VALID = 12 * 3600.0  # seconds that a message may wait for its node, if nobody says otherwise
SLACK = 60.0  # seconds that a message stays valid after nobody waits for its answer any more: clocks differ

Thing = TypeVar("Thing")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Sending:
    node: int
    action: str  # the ClientApp's function
    parcel: Parcel
    group: str = ""  # told to people by Flower: the round
    valid: float = VALID  # seconds; a node never sees it when they are over, nor does anybody see its answer


@dataclass(frozen=True)
class Reply:
    """What came back, or what Flower says of why nothing did."""

    parcel: Parcel | None = None
    error: int | None = None
    reason: str = ""

    @property
    def is_gone(self) -> bool:
        """Its node was lost on the way: it may be asked again."""
        return self.error is not None and self.error not in FINAL


class Courier:
    def __init__(self, grid: Grid, pause: Callable[[float], None] = time.sleep) -> None:
        self._grid = grid
        self._pause = pause
        self._length = SHORTEST
        self._calls = 0  # of the last look

    def nodes(self) -> list[NodeInfo]:
        """Those that are online."""
        return list(_spoken(self._grid.get_nodes))

    def push(self, sendings: Sequence[Sending]) -> list[str]:
        """The id of each message, by which its reply is found; "" for one whose node Flower does not know."""
        first, others = sendings[:AT_ONCE], sendings[AT_ONCE:]  # payloads that came with the first are not sent again
        push_some = partial(self._push_some, _Packing())
        ids = [*push_some(first), *_in_parts(push_some, others)] if first else []
        self._length = SHORTEST
        return ids

    def _push_some(self, packing: "_Packing", sendings: Sequence[Sending]) -> list[str]:
        messages = [packing.message(one) for one in sendings]
        pushed = list(_spoken(partial(self._grid.push_messages, messages)))
        if len(pushed) != len(sendings):  # which of them were taken is not told: what was is never asked for
            return [""] * len(sendings)
        return [identity or "" for identity in pushed]

    def pull(self, ids: Iterable[str]) -> dict[str, Reply]:
        """The replies that are there by now, by the id of what they reply to."""
        wanted = list(ids)
        self._calls = -(-len(wanted) // AT_ONCE)
        messages = _in_parts(lambda some: _spoken(partial(self._grid.pull_messages, some)), wanted)
        found = {message.metadata.reply_to_message_id: _reply(message) for message in messages}
        if found:
            self._length = SHORTEST
        return found

    def rest(self, most: float | None = None) -> None:
        """Before the next look; the longer nothing comes, and the more answers are looked for, the longer."""
        pause = max(self._length, QUIET * self._calls)
        self._pause(pause if most is None else max(0.0, min(pause, most)))
        self._length = min(LONGEST, GROWTH * self._length)

    def gather(self, sendings: Mapping[str, Sending], seconds: float) -> dict[str, Reply]:
        """The replies of those who answer within so many seconds, by the names that they were sent under."""
        pushed = self.push([replace(one, valid=seconds + SLACK) for one in sendings.values()])
        names = dict(zip(pushed, sendings, strict=True))
        names.pop("", None)
        return {names[identity]: reply for identity, reply in self.collect(names, seconds).items()}

    def collect(self, ids: Collection[str], seconds: float) -> dict[str, Reply]:
        """The replies to these messages that come within so many seconds."""
        found: dict[str, Reply] = {}
        until = time.monotonic() + seconds
        while len(found) < len(ids):
            pulled = self.pull([identity for identity in ids if identity not in found])
            found |= {identity: reply for identity, reply in pulled.items() if identity in ids}
            left = until - time.monotonic()
            if left <= 0:
                break
            if len(found) < len(ids):
                self.rest(left)
        return found


def _in_parts(do: Callable[[Sequence[Thing]], Iterable[Made]], things: Sequence[Thing]) -> list[Made]:
    """What is made of all of them, in their order, several calls at a time."""
    parts = [things[first : first + AT_ONCE] for first in range(0, len(things), AT_ONCE)]
    if len(parts) < 2:
        return [made for part in parts for made in do(part)]
    with ThreadPoolExecutor(min(HANDS, len(parts))) as hands:
        return [made for some in hands.map(do, parts) for made in some]


class _Packing:
    """Messages in Flower's form. A payload that goes to many is there once, however many are under way."""

    def __init__(self) -> None:
        self._last: tuple[bytes, Packed] | None = None

    def message(self, sending: Sending) -> Message:
        return Message(
            wrap(sending.parcel, self._packed(sending.parcel.payload)),
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


def _spoken(call: Callable[[], Made]) -> Made:
    """Flower tries again by itself while its SuperLink is away; what it gives up on, nobody can mend here."""
    try:
        return call()
    except httpx.HTTPError as problem:
        raise MachineError(
            f"The SuperLink cannot be spoken to ({type(problem).__name__}); its log tells why. Rounds committed so far "
            "are kept: go on with flwr run and the same out."
        ) from None


def _reply(message: Message) -> Reply:
    if message.has_error():
        return Reply(error=message.error.code, reason=for_terminal(message.error.reason or ""))
    try:
        return Reply(unwrap(message.content))
    except Unreadable as problem:
        return Reply(reason=str(problem))
