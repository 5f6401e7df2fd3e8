"""A deployment as a user makes it, on loopback: TLS, keys made by the nodes, three SuperNodes with their own data."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flower.conftest import CLIENTS
from tests.flower.deploying import Configs
from tests.flower.site import PATIENCE, Site, wait_for

from refprotofl.records.verify import first_difference


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "site")
    site.begin()
    yield site
    site.close()


def test_three_nodes_over_tls_give_the_digests_of_the_run_in_one_process(
    site: Site, settings: Configs, apart: Path, undisturbed: Path, tmp_path: Path
) -> None:
    assert stat.S_IMODE((site.made.server / "ca.key").stat().st_mode) == 0o600
    for number in range(CLIENTS):
        site.join(number, apart / f"client-{number}.npz")
        assert stat.S_IMODE((site.made.kit(number) / "node.key").stat().st_mode) == 0o600
    out = tmp_path / "there"
    site.submit(settings() | {"out": str(out)})

    wait_for((out / "summary.json").exists, PATIENCE, site.log)
    assert first_difference(undisturbed, out) is None
    assert "agree in every message and state" in site.refprotofl("verify", str(undisturbed), str(out))
    told = site.refprotofl("deploy", "doctor", str(site.made.kit(0)), "--experiment", str(out / "experiment.json"))
    assert "This node can take part." in told
    told = site.refprotofl("deploy", "status", str(site.folder))
    assert "3 nodes" in told
    assert all(f"node-{number}" in told for number in range(CLIENTS))
    site.submit(settings() | {"out": "relative"})
    wait_for(lambda: site.last_run()["status"] == "finished:failed", 60, lambda: str(site.last_run()))
    assert "give the whole path" in site.refprotofl("deploy", "status", str(site.folder), code=4)
