"""Admission of keys: a client belongs to a name and its key, and a revoked key is never admitted again."""

from pathlib import Path

import pytest

from refprotofl.core.errors import DataError, InputError
from refprotofl.deploy.admission import (
    Admissions,
    Admitted,
    default_client,
    read_admissions,
    write_admissions,
)
from refprotofl.deploy.registry import place_in
from refprotofl.deploy.site import Site, SiteKeys, create_site
from refprotofl.deploy.transport import Node

ONE, TWO, THREE = "1" * 64, "2" * 64, "3" * 64


@pytest.fixture
def admissions() -> Admissions:
    return Admissions({"node-0": Admitted(ONE, 0), "node-1": Admitted(TWO, 1)}, [THREE])


@pytest.mark.parametrize(
    ("name", "key", "client", "words"),
    [
        ("node-0", ONE, 0, "This key is admitted already, as node-0"),
        ("node-2", TWO, 2, "This key is admitted already, as node-1"),
        ("node-0", "4" * 64, 2, "node-0 is admitted already, with another key"),
        ("node-2", "4" * 64, 1, "Client 1 belongs to node-1 already"),
        ("node-2", THREE, 2, "This key was revoked"),
        ("", "4" * 64, 2, "is not a node's name"),
        ("../node", "4" * 64, 2, "is not a node's name"),
        ("x" * 64, "4" * 64, 2, "is not a node's name"),
        ("a\nb", "4" * 64, 2, "is not a node's name"),
    ],
)
def test_an_admission_that_takes_what_another_has_is_refused(
    admissions: Admissions, name: str, key: str, client: int, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        admissions.check_new(name, key, client)


def test_a_place_belongs_to_the_name_with_its_key(admissions: Admissions) -> None:
    admissions.check_new("node-2", "4" * 64, 2)
    grown = admissions.admit("node-2", "4" * 64, 2)
    assert grown.client_of("node-2", "4" * 64) == 2
    assert admissions.client_of("node-2", "4" * 64) is None
    assert [grown.client_of("node-0", key) for key in (ONE, TWO, THREE, "")] == [0, None, None, None]
    assert grown.client_of("node-1", ONE) is None
    gone = grown.revoke("node-0")
    assert gone.client_of("node-0", ONE) is None
    with pytest.raises(InputError, match="This key was revoked"):
        gone.check_new("node-0", ONE, 0)
    gone.check_new("node-0", "5" * 64, 0)  # a new key may have the name and the place


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return create_site(tmp_path / "site", SiteKeys(host="127.0.0.1", port=8443, operator_port=8444, nodes=2))


def test_admissions_are_stored_and_a_damaged_file_admits_no_node(site: Site, admissions: Admissions) -> None:
    assert read_admissions(site) == Admissions({}, [])
    write_admissions(site, admissions)
    assert read_admissions(site) == admissions
    for damage in (b"", b"{}", b'{"nodes": {"a": {"key": 1, "client": 0}}, "revoked": []}', b"[]"):
        (site.server / "admitted.json").write_bytes(damage)
        with pytest.raises(DataError, match=r"admitted\.json is damaged"):
            read_admissions(site)


def test_a_runs_places_follow_the_admissions_while_it_runs(site: Site, admissions: Admissions) -> None:
    place, node = place_in(site), Node(7, ONE, "node-0")
    assert place(node, "node-0") is None
    write_admissions(site, admissions)
    assert place(node, "whatever it calls itself") == 0
    assert place(Node(8, TWO, "node-0"), "node-0") is None
    assert place(Node(8, ONE, "node-1"), "node-1") is None
    write_admissions(site, admissions.revoke("node-0"))
    assert place(node, "node-0") is None


def test_without_keys_a_place_follows_the_name_that_a_node_gives_itself(tmp_path: Path) -> None:
    keys = SiteKeys(host="127.0.0.1", port=8443, operator_port=8444, nodes=2, insecure=True)
    place = place_in(create_site(tmp_path / "site", keys))
    assert [place(Node(7, "any", ""), name) for name in ("node-1", "node-2", "", "sensor")] == [1, None, None, None]


@pytest.mark.parametrize(("name", "client"), [("node-0", 0), ("node-11", 11), ("sensor.3", 3), ("7", 7), ("a1b2", 2)])
def test_a_name_ends_in_its_client_number(name: str, client: int) -> None:
    assert default_client(name, 12) == client


@pytest.mark.parametrize("name", ["node", "node-12", "node-1x", "", "node-99999999"])
def test_a_name_without_a_client_number_asks_for_one(name: str) -> None:
    with pytest.raises(InputError, match=r"Give --client 0 to 11\."):
        default_client(name, 12)
