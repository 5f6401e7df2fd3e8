"""A transport's server as the operator's commands see it, in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from refprotofl.deploy.admission import fingerprint
from refprotofl.deploy.operator import NodeStatus, RunStatus


@dataclass
class FakeOperator:
    """`said`: the statuses that a run has at one look after the other, the last of them for good."""

    known_nodes: list[NodeStatus] = field(default_factory=list)
    known_runs: list[RunStatus] = field(default_factory=list)
    said: list[RunStatus] = field(default_factory=list)
    calls: list[tuple[str, object]] = field(default_factory=list)
    trouble: Exception | None = None

    def start(self, config: dict[str, str]) -> int:
        self.calls.append(("start", config))
        return 1

    def stop(self, run: int) -> bool:
        self.calls.append(("stop", run))
        return True

    def run(self, run: int) -> RunStatus:
        return self.said.pop(0) if len(self.said) > 1 else self.said[0]

    def runs(self) -> list[RunStatus]:
        return self.known_runs

    def nodes(self) -> list[NodeStatus]:
        if self.trouble is not None:
            raise self.trouble
        return self.known_nodes

    def register(self, name: str, public_key: bytes) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.calls.append(("register", name))
        number = 100 + len(self.known_nodes)
        self.known_nodes.append(NodeStatus(number, name, fingerprint(public_key), "registered"))

    def unregister(self, node: int) -> None:
        self.calls.append(("unregister", node))
        self.known_nodes = [one for one in self.known_nodes if one.number != node]

    def certificates(self) -> dict[str, float]:
        return {}

    def renew(self, names: Sequence[str]) -> list[str]:
        return []
