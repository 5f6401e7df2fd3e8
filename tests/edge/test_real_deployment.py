"""A deployment over MQTT as a user makes it: mosquitto over TLS 1.3, keys made by the nodes, processes killed."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deployments import CLIENTS, Configs, failures, participants, simulated
from tests.edge.site import PATIENCE, Site, wait_for

from refprotofl.deploy.server_process import process_of
from refprotofl.records.events import read_events, read_messages
from refprotofl.records.verify import first_difference


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, apart: Path) -> Iterator[Site]:
    """One deployment for all: every test is a run of its own, and leaves the nodes as they were."""
    site = Site(tmp_path_factory.mktemp("edge") / "site")
    try:
        site.begin()
        for number in range(CLIENTS):
            site.join(number, apart / f"client-{number}.npz")
        yield site
    finally:
        site.close()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "there"


def rounds(out: Path) -> int:
    if not (out / "events.jsonl").exists():
        return 0
    return sum(event["event"] == "round" for event in read_events(out))


def joined_once(out: Path) -> bool:
    """Nobody has lost what it had."""
    found = [event for event in read_events(out) if event["event"] == "round"]
    return [event["round"] for event in found if "join" in read_messages(event)] == [1]


def finish(site: Site, out: Path) -> None:
    wait_for((out / "summary.json").exists, PATIENCE, site.log)


def begin(site: Site, config: dict[str, object], out: Path) -> None:
    """Start a run, and wait until it has committed a round."""
    site.submit(config | {"out": str(out)})
    wait_for(lambda: rounds(out) >= 1, PATIENCE, site.log)


def test_three_nodes_give_the_digests_of_the_run_in_one_process(
    site: Site, settings: Configs, undisturbed: Path, out: Path
) -> None:
    made = site.made
    config = settings()
    words = [word for name, value in config.items() if name != "preset" for word in ("--set", f"{name}={value}")]
    found = site.refprotofl("deploy", "run", str(site.folder), "--preset", "quick", *words, "--out", str(out))
    assert all(f"round {number} of 3, " in found for number in (1, 2, 3))
    assert first_difference(undisturbed, out) is None
    assert "This node can take part." in site.refprotofl("deploy", "doctor", str(made.kit(0)))
    for command in ("nodes", "status"):
        found = site.refprotofl("deploy", command, str(site.folder))
        assert found.count("online") == CLIENTS
    assert "finished:completed" in found
    assert all("Traceback" not in (made.kit(number) / "log").read_text() for number in range(CLIENTS))


def test_a_killed_node_comes_back_and_changes_nothing(
    site: Site, settings: Configs, undisturbed: Path, out: Path
) -> None:
    begin(site, settings(), out)
    site.kill_node(1)
    site.start_node(1)
    finish(site, out)
    assert first_difference(undisturbed, out) is None
    assert failures(out) == []
    assert joined_once(out)


@pytest.mark.parametrize("database", [True, False])
def test_a_killed_broker_is_started_again_and_changes_nothing(
    site: Site, settings: Configs, undisturbed: Path, out: Path, database: bool
) -> None:
    begin(site, settings(), out)
    (broker,) = site.brokers()
    folder = Path(site.broker_folder(broker))
    os.kill(broker, signal.SIGKILL)
    if not database:
        (folder / "mosquitto.db").unlink(missing_ok=True)
    finish(site, out)
    assert first_difference(undisturbed, out) is None
    assert failures(out) == []


@pytest.fixture(scope="module")
def long_run(settings: Configs, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The keys of a run that is still under way when something of it is killed, and its folder in this process."""
    config = settings(rounds=16, evaluate__every=16)
    return config, simulated(config, tmp_path_factory.mktemp("long") / "run").folder


def test_a_killed_run_is_resumed(site: Site, long_run: tuple[dict[str, Any], Path], out: Path) -> None:
    config, undisturbed = long_run
    begin(site, config, out)
    (process,) = site.run_processes()
    os.kill(process, signal.SIGKILL)
    wait_for(lambda: site.last_run().finished, PATIENCE, site.log)
    assert "Its process ended (exit code -9)" in site.last_run().reason
    site.submit(config | {"out": str(out)})
    finish(site, out)
    assert first_difference(undisturbed, out) is None


def test_a_killed_server_loses_no_committed_round(site: Site, long_run: tuple[dict[str, Any], Path], out: Path) -> None:
    config, undisturbed = long_run
    begin(site, config, out)
    server = process_of(site.made)
    assert server is not None
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: process_of(site.made) is None, PATIENCE, site.log)
    site.refprotofl("deploy", "start", str(site.folder))
    assert "The server was restarted while the run was under way." in site.last_run().reason
    site.submit(config | {"out": str(out)})
    finish(site, out)
    assert first_difference(undisturbed, out) is None


def test_a_revoked_node_is_cut_off_in_mid_run_and_cannot_come_back(
    site: Site, settings: Configs, out: Path, apart: Path
) -> None:
    """The last case: this node is not one of the site any more."""
    begin(site, settings(rounds=40, min_replies=2, evaluate__every=40, deadline=30), out)
    site.refprotofl("deploy", "revoke", str(site.folder), "node-2")
    wait_for(lambda: not site.is_online("node-2"), PATIENCE, site.log)
    finish(site, out)
    assert participants(out)[-1] == [0, 1]
    assert {(client, code) for _, client, code in failures(out)} == {(2, "absent")}
    assert "refuses this node's certificate" in site.refprotofl("deploy", "doctor", str(site.made.kit(2)), code=2)
