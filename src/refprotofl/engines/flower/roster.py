"""Which node is which client. It is settled once and kept in the run folder, so a node that comes back is the same."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from flwr.proto.node_pb2 import NodeInfo
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.basics.escapes import for_terminal
from refprotofl.errors import DataError
from refprotofl.records.files import sha256, write_whole
from refprotofl.records.folder import NODES
from refprotofl.records.inside import check_file, read_json


class _Kept(TypedDict):
    run: str
    clients: dict[str, int]  # by the node's identity
    names: dict[str, str]


_KEPT = TypeAdapter(_Kept)


@dataclass(frozen=True)
class Node:
    """A node as Flower sees it now: its number may be another when it comes back, its identity is not."""

    number: int
    identity: str
    name: str

    @property
    def label(self) -> str:
        """For people."""
        return self.name or str(self.number)


class Roster:
    def __init__(self, folder: Path, clients: int) -> None:
        self._path = folder / NODES
        self._size = clients
        kept = self._read()
        self.run = kept["run"]  # the run's id, in every request
        self._clients = kept["clients"]
        self._names = kept["names"]
        self._identities = {number: identity for identity, number in self._clients.items()}
        self._online: dict[str, Node] = {}

    def seen(self, nodes: Iterable[Node]) -> None:
        self._online = {node.identity: node for node in nodes}

    def newcomers(self) -> list[Node]:
        """Nodes that are online and no client yet."""
        return [node for node in self._online.values() if node.identity not in self._clients]

    def candidates(self) -> list[Node]:
        """Newcomers that there may be a client for."""
        if self.missing:
            return self.newcomers()
        return [node for node in self.newcomers() if not node.name] if self._vacated() else []

    def _vacated(self) -> list[int]:
        """Clients whose node is not online and has no name.

        Where nobody registers nodes, each has another key after every start: it comes back as a newcomer, and only what
        it asks to be tells who it was.
        """
        return [client for client in self.away if not self.name_of(client)]

    def node_of(self, client: int) -> Node | None:
        """The client's node, if it is online."""
        return self._online.get(self._identities.get(client, ""))

    def name_of(self, client: int) -> str:
        return self._names.get(self._identities.get(client, ""), "")

    def is_taken(self, client: int) -> bool:
        return client in self._identities

    @property
    def missing(self) -> list[int]:
        """Clients that no node has come for."""
        return [client for client in range(self._size) if client not in self._identities]

    @property
    def away(self) -> list[int]:
        """Clients whose node is not online."""
        return sorted(number for identity, number in self._clients.items() if identity not in self._online)

    def here(self) -> list[int]:
        return sorted(number for identity, number in self._clients.items() if identity in self._online)

    def admit(self, wishes: Mapping[Node, int | None]) -> dict[Node, str]:
        """Gives each node the client that it wishes to be, else the first that is free; says why one cannot be any."""
        complaints = {}
        for node in sorted(wishes, key=lambda node: (wishes[node] is None, wishes[node] or 0, _by_number(node.name))):
            wish, free = wishes[node], self.missing
            open_to_it = free if node.name else [*free, *self._vacated()]
            if wish in open_to_it:
                self._seat(node, wish)
            elif wish is None and free:
                self._seat(node, free[0])
            else:
                complaints[node] = self._complaint(node, wish)
        self.keep()
        return complaints

    def _seat(self, node: Node, client: int) -> None:
        before = self._identities.get(client, "")
        self._clients.pop(before, None)
        self._names.pop(before, None)
        self._clients[node.identity], self._identities[client] = client, node.identity
        self._names[node.identity] = node.name

    def _complaint(self, node: Node, wish: int | None) -> str:
        who, gone = for_terminal(node.label), self._vacated()
        if wish is not None:
            taken = "taken by another node" if wish < self._size else f"not among clients = {self._size}"
            return f"Node {who} asks to be client {wish}, which is {taken}: it is left out."
        if gone and not node.name:
            return (
                f"Node {who} may be that of client {' or '.join(map(str, gone))} started again, which nobody can tell: "
                "register nodes by name, or set client in the config of each. It is left out."
            )
        return f"Node {who} is not needed: the experiment has clients = {self._size}."

    def _read(self) -> _Kept:
        if not check_file(self._path):
            return {"run": uuid4().hex, "clients": {}, "names": {}}
        try:
            kept: _Kept = _KEPT.validate_python(read_json(self._path), strict=True)
        except (OSError, ValueError, ValidationError):
            raise DataError(f"{self._path} is damaged: without it nobody knows which node is which client.") from None
        return kept

    def keep(self) -> None:
        """Writes it to the run folder."""
        kept = {"run": self.run, "clients": self._clients, "names": self._names}
        write_whole(self._path, (json.dumps(kept, indent=2) + "\n").encode())


def as_node(info: NodeInfo) -> Node:
    """By its key where nodes have such, else by the name that it was registered under, else for this run of Flower."""
    identity = sha256(info.public_key) if info.public_key else info.name or f"node {info.node_id}"
    return Node(info.node_id, identity, info.name)


def _by_number(name: str) -> tuple[str, int, str]:
    """node-10 comes after node-9."""
    stem = name.rstrip("0123456789")
    digits = name[len(stem) :].lstrip("0")
    return stem, len(digits), digits
