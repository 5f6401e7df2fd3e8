"""A deployment as a user makes it, on loopback: TLS, keys made by the nodes, three nodes with their own data."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deployments import CLIENTS, Configs
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
    made, folder = site.made, str(site.folder)
    for path in (made.server / "ca.key", made.server / "server.key", made.server / "operator.secret"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for number in range(CLIENTS):
        site.join(number, apart / f"client-{number}.npz")
        assert stat.S_IMODE((made.kit(number) / "node.key").stat().st_mode) == 0o600
    assert "ok  admission: this node's key is admitted." in site.refprotofl("deploy", "doctor", str(made.kit(0)))
    out, config = tmp_path / "there", settings()
    words = [word for name, value in config.items() if name != "preset" for word in ("--set", f"{name}={value}")]

    found = site.refprotofl("deploy", "run", folder, "--preset", config["preset"], *words, "--out", str(out))
    assert all(f"round {number} of 3, " in found for number in (1, 2, 3))
    assert f"The run is in {out}" in found
    assert first_difference(undisturbed, out) is None
    assert "agree in all messages and states" in site.refprotofl("verify", str(undisturbed), str(out))

    found = site.refprotofl("deploy", "doctor", str(made.kit(0)), "--experiment", str(out / "experiment.json"))
    assert "This node can take part." in found
    for command in ("nodes", "status"):
        found = site.refprotofl("deploy", command, folder)
        assert "3 nodes" in found
        assert all(f"node-{number}" in found for number in range(CLIENTS))
        assert found.count("online") == CLIENTS
    assert "finished:completed" in found
    for number in range(CLIENTS):
        log = (made.kit(number) / "log").read_text()
        assert log.count("This node's key is not admitted.") <= 1  # it said so once, however long it waited
        assert "Traceback" not in log

    site.submit(settings(method="fast") | {"out": str(tmp_path / "refused")})  # what only the run's process finds out
    wait_for(lambda: site.last_run().finished, PATIENCE, site.log)
    assert "is for simulation only" in " ".join(site.refprotofl("deploy", "status", folder, code=4).split())
    assert "is for simulation only" in site.refprotofl(
        "deploy", "run", folder, *words, "--set", "method=fast", "--out", str(tmp_path / "refused"), code=2
    )
