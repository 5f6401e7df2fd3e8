"""The shared part after a run's last round, handed to every admitted node, also to those that come online later."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refprotofl.core import DataError, RefProtoFLError
from refprotofl.deploy.log import log
from refprotofl.deploy.site import Site
from refprotofl.deploy.transport import SLACK, Envelope, Node, Sending, Transport
from refprotofl.records import check_file, parse_json, read_file, read_json, write_whole

FINAL = "final"  # the action
AGAIN = 120.0  # seconds after which a node that has not answered is sent it once more
PAUSE = 0.5  # seconds between two looks
ROUND_OFF = 60.0  # seconds that nodes which are online have at the end of a run


@dataclass(frozen=True)
class FinalPart:
    """The shared part after the last round, encoded, with which a client is scored.

    `states`: the digest of each client's own state.
    """

    run: str
    round: int
    clients: int
    experiment: Mapping[str, Any]
    states: Mapping[str, str]
    payload: bytes

    def envelope(self, client: int) -> Envelope:
        header = {
            "run": self.run,
            "client": client,
            "round": self.round,
            "state": self.states.get(str(client), ""),
            "experiment": dict(self.experiment),
        }
        return Envelope(header, self.payload)

    def write(self, path: Path) -> None:
        head = json.dumps(
            {
                "run": self.run,
                "round": self.round,
                "clients": self.clients,
                "experiment": dict(self.experiment),
                "states": dict(self.states),
            }
        ).encode()
        write_whole(path, len(head).to_bytes(4, "little") + head + self.payload)

    @classmethod
    def read(cls, path: Path) -> "FinalPart":
        try:
            data = read_file(path)
            end = 4 + int.from_bytes(data[:4], "little")
            return cls(payload=data[end:], **parse_json(data[4:end]))
        except (OSError, ValueError, TypeError, RefProtoFLError):
            raise DataError(f"{path} is damaged: run again with the same --out to write it anew.") from None


class HandOut:
    """Sends a final part to each node once. `client_of` returns the client that a node is; None: it has no place.

    `handed`: the identities of nodes that have it; `keep` is called when there are more.
    """

    def __init__(
        self,
        transport: Transport,
        final: FinalPart,
        client_of: Callable[[Node], int | None],
        handed: set[str],
        keep: Callable[[set[str]], None] = lambda handed: None,
    ) -> None:
        self._transport, self._final, self._client_of = transport, final, client_of
        self._handed, self._keep = handed, keep
        self._under_way: dict[str, tuple[str, float]] = {}  # by node: the message, and since when

    def step(self) -> bool:
        """Send it to nodes that lack it, and take their answers; return whether all that are online have it."""
        lacking = [node for node in self._transport.nodes() if node.identity not in self._handed]
        placed = [(node, client) for node in lacking if (client := self._client_of(node)) is not None]
        placed = [(node, client) for node, client in placed if client < self._final.clients]
        self._send(placed)
        self._take()
        return all(node.identity in self._handed for node, _ in placed)

    def _send(self, placed: list[tuple[Node, int]]) -> None:
        now = time.monotonic()
        due = [one for one in placed if now - self._under_way.get(one[0].identity, ("", now - AGAIN))[1] >= AGAIN]
        sendings = [
            Sending(node.number, FINAL, self._final.envelope(client), valid=AGAIN + SLACK) for node, client in due
        ]
        for (node, _), message in zip(due, self._transport.push(sendings), strict=True):
            if message:
                self._under_way[node.identity] = message, now

    def _take(self) -> None:
        waiting = {message: identity for identity, (message, _) in self._under_way.items()}
        answered = False
        for message, reply in self._transport.pull(waiting).items():
            del self._under_way[waiting[message]]
            if reply.envelope is None:
                continue  # it is sent again when the node is back
            self._handed.add(waiting[message])  # one that refuses has said why in its own log
            answered = True
        if answered:
            self._keep(self._handed)

    def finish(self, seconds: float = ROUND_OFF) -> None:
        """Hand it to the nodes that are online."""
        until = time.monotonic() + seconds
        while not self.step() and time.monotonic() < until:
            self._transport.rest(PAUSE)


def final_path(site: Site, run: int | str) -> Path:
    return site.runs / f"{run}.final"


def read_handed(site: Site, run: int | str) -> set[str]:
    """Return the identities of the nodes that have the final part of a run."""
    path = site.runs / f"{run}.handed"
    with suppress(OSError, ValueError, TypeError):
        if check_file(path):
            return {str(one) for one in read_json(path)}
    return set()


def write_handed(site: Site, run: int | str, handed: set[str]) -> None:
    with suppress(RefProtoFLError):  # a node that is handed it twice answers that it has it
        write_whole(site.runs / f"{run}.handed", json.dumps(sorted(handed)).encode())


def newest_final(site: Site) -> str | None:
    """Return the run whose final part was written last; None if there is none."""
    found = sorted(site.runs.glob("*.final"), key=lambda path: path.stat().st_mtime)
    return found[-1].stem if found else None


def hand_out(transport: Transport, site: Site, run: int | str, client_of: Callable[[Node], int | None]) -> None:
    """Hand the final part of a run to the nodes that are online now."""
    if not check_file(final_path(site, run)):
        return
    final, handed = FinalPart.read(final_path(site, run)), read_handed(site, run)
    HandOut(transport, final, client_of, handed, lambda nodes: write_handed(site, run, nodes)).finish()
    log(f"{len(handed)} nodes have the final shared part.", "final", nodes=len(handed))
