"""The transport of a deployment: the nodes that are online, and envelopes to and from them."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from refprotofl.core import RefProtoFLError

VALID = 12 * 3600.0  # seconds that a message may wait for its node, unless its sender says otherwise
SLACK = 60.0  # seconds that a message stays valid after its sender stopped waiting: clocks differ


class Unreadable(RefProtoFLError):
    """A message in another format."""


@dataclass(frozen=True)
class Envelope:
    """The unit that crosses between server and node: a JSON header and one byte string, an encoded message."""

    header: Mapping[str, Any]
    payload: bytes = b""


@dataclass(frozen=True)
class Node:
    """A node as the transport sees it now: its number may change when it reconnects, its identity does not.

    `name` is empty where nodes are not admitted by name (an insecure site).
    """

    number: int
    identity: str
    name: str

    @property
    def label(self) -> str:
        """The name shown to people."""
        return self.name or str(self.number)


@dataclass(frozen=True)
class Sending:
    node: int
    action: str  # "hello", "run" or "ask"
    envelope: Envelope
    group: str = ""  # the round, for the transport's own logs
    valid: float = VALID  # seconds; an expired message is never delivered, nor is its answer


@dataclass(frozen=True)
class Reply:
    """The reply to a message. Without an envelope, `gone` means that the node was lost and may be asked again."""

    envelope: Envelope | None = None
    gone: bool = False
    reason: str = ""  # as given by the transport


class Transport(Protocol):
    """Carries envelopes between the server and its nodes. A transport is these four methods, and nothing else.

    It knows nothing of clients, rounds or states: `Fleet` decides which node is which client, and `DeploymentEngine`
    sends what was lost once more. So messages may be lost, delivered twice or late, but not altered.
    """

    def nodes(self) -> list[Node]:
        """Return the nodes that are online."""

    def push(self, sendings: Sequence[Sending]) -> list[str]:
        """Return the id of each message, by which its reply is found; "" for one that was not taken."""

    def pull(self, ids: Iterable[str]) -> dict[str, Reply]:
        """Return the replies that have arrived, each once, by the id of the message they answer. Do not wait."""

    def rest(self, most: float | None = None) -> None:
        """Wait before the next look, at most `most` seconds; longer the longer nothing arrives."""


def collect(transport: Transport, ids: Collection[str], seconds: float) -> dict[str, Reply]:
    """Return the replies to these messages that arrive within `seconds`."""
    found: dict[str, Reply] = {}
    until = time.monotonic() + seconds
    while len(found) < len(ids):
        pulled = transport.pull([identity for identity in ids if identity not in found])
        found |= {identity: reply for identity, reply in pulled.items() if identity in ids}
        left = until - time.monotonic()
        if left <= 0:
            break
        if len(found) < len(ids):
            transport.rest(left)
    return found
