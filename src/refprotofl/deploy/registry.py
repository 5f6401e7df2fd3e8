"""The nodes of a run and their clients. A client belongs to an admitted key, not to the first node to connect."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from refprotofl.core import DataError, InputError, for_terminal
from refprotofl.deploy.admission import default_client, read_admissions
from refprotofl.deploy.site import Site
from refprotofl.deploy.transport import Node
from refprotofl.records import check_file, read_json, write_whole
from refprotofl.records.folder import NODES

# Returns the client that a node is, by its identity and the name that it gives itself; None if it has no place.
Place = Callable[[Node, str], int | None]


class _Kept(TypedDict):
    run: str
    clients: dict[str, int]  # by the node's identity
    names: dict[str, str]


_KEPT = TypeAdapter(_Kept)


class NodeRegistry:
    """The nodes of a run; kept in the run folder, so that a restarted server knows which nodes to wait for."""

    def __init__(self, folder: Path, clients: int, place: Place) -> None:
        self._path = folder / NODES
        self._size = clients
        self._place = place
        kept = self._read()
        self.run = kept["run"]  # the run's id, in every request
        self._clients = kept["clients"]
        self._names = kept["names"]
        self._identities = {number: identity for identity, number in self._clients.items()}
        self._online: dict[str, Node] = {}

    def seen(self, nodes: Iterable[Node]) -> None:
        """Update the online nodes; a node that lost its place (its key was revoked) is no client any more."""
        self._online = {node.identity: node for node in nodes}
        for identity, client in list(self._clients.items()):
            name = self._names.get(identity, "")
            node = self._online.get(identity, Node(0, identity, name))
            if self._place(node, name) != client:
                self._leave(identity)

    def newcomers(self) -> list[Node]:
        """Return the nodes that are online and no client yet."""
        return [node for node in self._online.values() if node.identity not in self._clients]

    def node_of(self, client: int) -> Node | None:
        """Return the client's node, if it is online."""
        return self._online.get(self._identities.get(client, ""))

    def name_of(self, client: int) -> str:
        return self._names.get(self._identities.get(client, ""), "")

    def label_of(self, client: int) -> str:
        """Return the label of a client and its node for people."""
        name = for_terminal(self.name_of(client))
        return f"{name} (client {client})" if name else f"client {client}"

    def is_taken(self, client: int) -> bool:
        return client in self._identities

    @property
    def missing(self) -> list[int]:
        """Clients whose node has never connected."""
        return [client for client in range(self._size) if client not in self._identities]

    @property
    def away(self) -> list[int]:
        """Clients whose node is not online."""
        return sorted(number for identity, number in self._clients.items() if identity not in self._online)

    def here(self) -> list[int]:
        return sorted(number for identity, number in self._clients.items() if identity in self._online)

    def admit(self, greeted: Mapping[Node, str]) -> dict[Node, str]:
        """Give each node its place, by the name that it gave itself; return why a node has none."""
        complaints = {}
        for node, name in greeted.items():
            client = self._place(node, name)
            complaint = self._complaint(node, name, client)
            if complaint:
                complaints[node] = complaint
            elif client is not None:
                self._leave(self._identities.get(client, ""))
                self._clients[node.identity], self._identities[client] = client, node.identity
                self._names[node.identity] = node.name or name
        self.keep()
        return complaints

    def _leave(self, identity: str) -> None:
        self._identities.pop(self._clients.pop(identity, -1), None)
        self._names.pop(identity, None)

    def _complaint(self, node: Node, name: str, client: int | None) -> str:
        label = for_terminal(node.name or name or str(node.number))
        if client is None:
            return (
                f"Node {label} is left out: it has no place. Admit its key with refprotofl deploy admit; on an "
                "insecure site, give it a name such as node-0."
            )
        if client >= self._size:
            return f"Node {label} is left out: it is client {client}, and the run has clients = {self._size}."
        if self.node_of(client) is not None:
            return f"Node {label} is left out: {self.label_of(client)} is online."
        return ""

    def _read(self) -> _Kept:
        if not check_file(self._path):
            return {"run": uuid4().hex, "clients": {}, "names": {}}
        try:
            kept: _Kept = _KEPT.validate_python(read_json(self._path), strict=True)
        except (OSError, ValueError, ValidationError):
            raise DataError(f"{self._path} is damaged: it records which node is which client.") from None
        return kept

    def keep(self) -> None:
        """Write it to the run folder."""
        kept = {"run": self.run, "clients": self._clients, "names": self._names}
        write_whole(self._path, (json.dumps(kept, indent=2) + "\n").encode())


def place_in(site: Site) -> Place:
    """Return how a node's place is found: by its admitted key, on an insecure site by the name that it gives itself."""

    def by_key(node: Node, name: str) -> int | None:
        return read_admissions(site).client_of(node.name, node.identity)

    def by_name(node: Node, name: str) -> int | None:
        try:
            return default_client(name, site.keys.nodes)
        except InputError:
            return None

    return by_name if site.keys.insecure else by_key
