"""Kits under the names of their nodes."""

from pathlib import Path

import pytest

from refprotofl.core.errors import InputError
from refprotofl.deploy.kits import read_names, write_kits
from refprotofl.deploy.node_config import read_node_config
from refprotofl.deploy.site import SiteKeys, create_site


def test_kits_have_the_names_of_their_nodes(tmp_path: Path) -> None:
    keys = SiteKeys(host="127.0.0.1", port=8443, operator_port=8444, nodes=2, insecure=True)
    site = create_site(tmp_path / "site", keys)
    write_kits(site, read_names('basel, St. "Anna"', 2))
    assert [read_node_config(site.kit(node)).name for node in range(2)] == ["basel", 'St. "Anna"']


@pytest.mark.parametrize(("names", "complaint"), [("a,b,c", "3 names for 2 nodes"), ("a,A", "differ at most in case")])
def test_names_that_do_not_fit_are_refused(names: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        read_names(names, 2)
