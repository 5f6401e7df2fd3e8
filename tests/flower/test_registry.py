"""The clients of nodes: decided by the admitted key, not by order of connection or given names."""

import json
from pathlib import Path

import pytest

from refprotofl.core.errors import DataError
from refprotofl.deploy.admission import Admissions, Admitted
from refprotofl.deploy.registry import NodeRegistry
from refprotofl.deploy.transport import Node

ZERO, ONE, OTHER = Node(10, "key 0", "node-0"), Node(11, "key 1", "node-1"), Node(12, "other key", "node-0")


class Places:
    def __init__(self) -> None:
        self.known = Admissions({"node-0": Admitted("key 0", 0), "node-1": Admitted("key 1", 1)}, [])

    def __call__(self, node: Node, name: str) -> int | None:
        return self.known.client_of(node.name, node.identity)


@pytest.fixture
def places() -> Places:
    return Places()


@pytest.fixture
def registry(tmp_path: Path, places: Places) -> NodeRegistry:
    return NodeRegistry(tmp_path, 2, places)


def test_a_node_that_starts_first_under_anothers_name_gets_no_place(registry: NodeRegistry) -> None:
    registry.seen([OTHER])
    complaints = registry.admit({OTHER: "node-0"})
    assert list(complaints) == [OTHER]
    assert complaints[OTHER].startswith("Node node-0 is left out: it has no place.")
    assert registry.missing == [0, 1]
    registry.seen([OTHER, ZERO])
    assert registry.newcomers() == [OTHER, ZERO]
    assert registry.admit({ZERO: "what it likes"}) == {}
    assert registry.node_of(0) == ZERO
    assert (registry.name_of(0), registry.missing, registry.here(), registry.away) == ("node-0", [1], [0], [])


def test_a_node_keeps_its_place_when_it_comes_back_under_another_number(registry: NodeRegistry, tmp_path: Path) -> None:
    registry.seen([ZERO, ONE])
    registry.admit({ZERO: "", ONE: ""})
    registry.seen([ONE])
    assert (registry.node_of(0), registry.away, registry.is_taken(0)) == (None, [0], True)
    back = Node(99, "key 0", "node-0")
    registry.seen([back, ONE])
    assert registry.node_of(0) == back
    assert registry.newcomers() == []


def test_a_restarted_server_knows_whom_to_wait_for(registry: NodeRegistry, places: Places, tmp_path: Path) -> None:
    registry.seen([ZERO])
    registry.admit({ZERO: ""})
    again = NodeRegistry(tmp_path, 2, places)
    assert again.run == registry.run
    assert (again.away, again.missing, again.label_of(0)) == ([0], [1], "node-0 (client 0)")
    (tmp_path / "nodes.json").write_text(json.dumps({"run": "x", "clients": {"a": "0"}, "names": {}}))
    with pytest.raises(DataError, match=r"nodes\.json is damaged"):
        NodeRegistry(tmp_path, 2, places)


@pytest.mark.parametrize("online", [True, False])
def test_a_revoked_key_loses_its_place_in_mid_run(registry: NodeRegistry, places: Places, online: bool) -> None:
    registry.seen([ZERO, ONE])
    registry.admit({ZERO: "", ONE: ""})
    places.known = places.known.revoke("node-0")
    registry.seen([ZERO, ONE] if online else [ONE])
    assert (registry.is_taken(0), registry.node_of(0), registry.here()) == (False, None, [1])
    assert registry.newcomers() == ([ZERO] if online else [])
    places.known = places.known.admit("node-0", "new key", 0)
    new = Node(13, "new key", "node-0")
    registry.seen([ONE, new])
    assert registry.admit({new: ""}) == {}
    assert registry.node_of(0) == new


def test_a_client_that_the_run_does_not_have_is_reported(tmp_path: Path, places: Places) -> None:
    registry = NodeRegistry(tmp_path, 1, places)
    registry.seen([ONE])
    assert registry.admit({ONE: ""}) == {ONE: "Node node-1 is left out: it is client 1, and the run has clients = 1."}


def test_what_a_node_calls_itself_is_harmless_on_a_terminal(tmp_path: Path) -> None:
    registry = NodeRegistry(tmp_path, 1, lambda node, name: None)
    nameless = Node(7, "key", "")
    registry.seen([nameless])
    (complaint,) = registry.admit({nameless: "\x1b[2Jnode"}).values()
    assert "\x1b" not in complaint
