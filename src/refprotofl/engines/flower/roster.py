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
from refprotofl.records.inside import check_file, read_json

FILE = "nodes.json"


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


class Roster:
    def __init__(self, folder: Path, clients: int) -> None:
        self._path = folder / FILE
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

    def admit(self, wishes: Mapping[Node, int | None]) -> list[str]:
        """Gives each node the client that it wishes to be, else the first that is free; says who cannot be one."""
        complaints, free = [], self.missing
        for node in sorted(wishes, key=lambda node: (wishes[node] is None, wishes[node] or 0, _by_number(node.name))):
            wish = wishes[node]
            who = for_terminal(node.name or node.identity[:12])
            if not free:
                complaints.append(f"Node {who} is not needed: the experiment has clients = {self._size}.")
            elif wish is not None and wish not in free:
                taken = "taken by another node" if wish < self._size else f"not among clients = {self._size}"
                complaints.append(f"Node {who} asks to be client {wish}, which is {taken}: it is left out.")
            else:
                client = free[0] if wish is None else wish
                free.remove(client)
                self._clients[node.identity], self._identities[client] = client, node.identity
                self._names[node.identity] = node.name
        self.keep()
        return complaints

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


def _by_number(name: str) -> tuple[str, int]:
    """node-10 comes after node-9."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)
