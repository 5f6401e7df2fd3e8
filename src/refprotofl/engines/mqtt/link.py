"""Topics, and the connection to a broker as a server and a node use it."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

PREFIX = "rp"  # of all topics, so that a broker can serve other applications, too
SERVER = "server"  # the broker's user name of the server and of its runs
OFFERED = 4  # payloads of answers that a node keeps for a server that fetches them in parts

# Called with the topic, the message, the seconds that it is still valid (None: for ever), and whether it was retained.
Deliver = Callable[[str, bytes, float | None, bool], None]
# Called when a connection is there: True if the broker has kept the session, so that no message was lost.
Connected = Callable[[bool], None]


def node_id(fingerprint: str) -> str:
    """Return a node's user name at the broker, from the SHA-256 of its public key."""
    return base64.b32encode(bytes.fromhex(fingerprint)[:10]).decode().lower()


@dataclass(frozen=True)
class Topics:
    """A node reads `down` and `certificate`, and writes `up` and `presence`, each its own only."""

    prefix: str = PREFIX

    def presence(self, node: str) -> str:
        """Return the topic of a retained message with the number of the node's process; empty when it is offline."""
        return f"{self.prefix}/s/{node}"

    def down(self, node: str) -> str:
        return f"{self.prefix}/d/{node}"

    def up(self, node: str, session: str) -> str:
        return f"{self.prefix}/u/{node}/{session}"

    def certificate(self, node: str) -> str:
        """Return the topic of a retained message with the node's newest certificate."""
        return f"{self.prefix}/c/{node}"

    def node_of(self, topic: str) -> str:
        """Return the node that may write to this topic: the broker sees to it that no other does."""
        return topic.removeprefix(f"{self.prefix}/").split("/")[1]

    def is_presence(self, topic: str) -> bool:
        return topic.startswith(f"{self.prefix}/s/")


class Link(Protocol):
    """A connection that comes back by itself; while the broker keeps its session, messages arrive at least once."""

    def open(self, subscriptions: list[str], deliver: Deliver, connected: Connected) -> None: ...

    def publish(self, topic: str, data: bytes, valid: float | None = None, *, retain: bool = False) -> None:
        """Send a message; one that is not delivered within `valid` seconds is dropped. Does not wait."""

    def close(self) -> None: ...
