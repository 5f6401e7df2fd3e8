"""The operator of a site: admits and revokes nodes, submits runs and follows them."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from refprotofl.core import InputError
from refprotofl.deploy.admission import (
    default_client,
    fingerprint,
    read_admissions,
    read_public_key,
    write_admissions,
)
from refprotofl.deploy.log import sentence_of
from refprotofl.deploy.site import Site
from refprotofl.records import open_file, read_json

LOOK = 0.5  # seconds between two looks for new lines of a run


@dataclass(frozen=True)
class NodeStatus:
    """A node as the transport's server sees it."""

    number: int
    name: str
    key: str  # SHA-256 of its public key
    status: str  # "registered" before it first connected, then "online" or "offline"
    seen: float = 0.0  # when it last came or went, in seconds since 1970; 0 if that is unknown


@dataclass(frozen=True)
class RunStatus:
    run: int
    status: str  # "pending", "starting", "running" or "finished:…"
    reason: str = ""
    exit_code: int = 4

    @property
    def finished(self) -> bool:
        return self.status.startswith("finished")


class Operator(Protocol):
    """A transport's server, as the site's operator talks to it."""

    def start(self, config: dict[str, str]) -> int:
        """Submit a run with these settings; return its id."""

    def stop(self, run: int) -> bool: ...

    def run(self, run: int) -> RunStatus: ...

    def runs(self) -> list[RunStatus]:
        """Return the latest runs, the newest first."""

    def nodes(self) -> list[NodeStatus]:
        """Return the nodes whose keys are registered."""

    def register(self, name: str, public_key: bytes) -> None: ...

    def unregister(self, node: int) -> None: ...

    def certificates(self) -> dict[str, float]:
        """Return the days until the nodes' certificates end, by name; empty where nodes have keys only."""

    def renew(self, names: Sequence[str]) -> list[str]:
        """Replace the certificates of these nodes; return those that were."""


def admit(site: Site, operator: Operator, name: str, key: Path, client: int | None = None) -> tuple[int, str]:
    """Admit a node's key; return the client that it is and the key's fingerprint.

    The transport takes the key first: a crash in between leaves a key that has no place, which is admitted again.
    """
    public_key = read_public_key(key)
    chosen = default_client(name, site.keys.nodes) if client is None else client
    mark = fingerprint(public_key)
    with site.locked("admissions"):
        admissions = read_admissions(site)
        admissions.check_new(name, mark, chosen)
        registered = {node.key: node.name for node in operator.nodes()}
        if registered.get(mark, name) != name:
            raise InputError(f"This key is registered as {registered[mark]}: admit it under that name.")
        if mark not in registered:
            operator.register(name, public_key)
        write_admissions(site, admissions.admit(name, mark, chosen))
    return chosen, mark


def revoke(site: Site, operator: Operator, name: str) -> None:
    """Take a node's place from its key, for good: first here, so that no run gives it work, then at the transport."""
    with site.locked("admissions"):
        admissions = read_admissions(site)
        if name not in admissions.nodes:
            known = ", ".join(admissions.nodes) or "none"
            raise InputError(f"No node {name} is admitted. Admitted nodes: {known}.")
        mark = admissions.nodes[name].key
        write_admissions(site, admissions.revoke(name))
    for node in operator.nodes():
        if node.key == mark:
            operator.unregister(node.number)


def follow(site: Site, operator: Operator, run: int, show: Callable[[str], None]) -> RunStatus:
    """Show a run's lines as they are written, and return how it ended."""
    lines = _Lines(site.runs / f"{run}.log")
    while True:
        status = operator.run(run)  # before the last look, so that no line is missed
        for line in lines.new():
            show(sentence_of(line))
        if status.finished:
            return status
        time.sleep(LOOK)


class _Lines:
    """The lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._part = path, 0, b""

    def new(self) -> Iterator[str]:
        try:
            with open_file(self._path) as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        self._offset += len(data)
        *whole, self._part = (self._part + data).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in whole)


def run_state(site: Site, run: int) -> dict[str, Any]:
    """Return the progress that a run's process wrote last; empty if there is none."""
    try:
        found = read_json(site.runs / f"{run}.json")
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
