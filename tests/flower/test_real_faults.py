"""Faults on loopback with a real server and real nodes. They take minutes: `make test-flower-faults`.

One deployment for all: every case is a run of its own over the same three nodes, and leaves them as they were.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.deployments import CLIENTS, Configs, failures, participants, simulated
from tests.flower.breaking import Link, answered, cpu_seconds, fill, processes, small_disk
from tests.flower.site import PATIENCE, Site, wait_for

from refprotofl.deploy.operator import run_state
from refprotofl.deploy.server_process import process_of
from refprotofl.records.events import read_events, read_messages
from refprotofl.records.verify import first_difference

pytestmark = pytest.mark.skipif(os.environ.get("REFPROTOFL_FAULTS") != "full", reason="takes minutes")

LATE = 30  # seconds of a deadline that a node misses: less than the 39 after which it counts as offline
LONG = 60  # epochs that take a node some seconds of computing
KEPT_OUT = "another one with the same key is online"  # as a node hears it
WAITS = "This node's key is not admitted."
ENOUGH = 12  # rounds of a run in which a node is gone for two minutes
PROTOTYPES = 1  # the first phase of a round; training is the second


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, apart: Path) -> Iterator[Site]:
    """Node 1 is connected through a link that can be cut."""
    site = Site(tmp_path_factory.mktemp("faults") / "site")
    site.begin()
    link = site.link = Link(site.made.keys.port)
    config = site.made.kit(1) / "node.toml"
    config.write_text(config.read_text().replace(f":{site.made.keys.port}", f":{link.port}"))
    try:
        for number in range(CLIENTS):
            site.join(number, apart / f"client-{number}.npz")
        yield site
    finally:
        site.close()
        link.close()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "there"


def rounds(out: Path) -> int:
    if not (out / "events.jsonl").exists():
        return 0
    return sum(event["event"] == "round" for event in read_events(out))


def begin(site: Site, config: dict[str, Any], out: Path, after: int = 1) -> None:
    """A run that has committed this many rounds."""
    site.submit(config | {"out": str(out)})
    wait_for(lambda: rounds(out) >= after, PATIENCE, site.log)


def finish(site: Site, out: Path) -> None:
    wait_for((out / "summary.json").exists, PATIENCE, site.log)


def run_log(site: Site) -> str:
    return (site.made.runs / f"{site.run}.log").read_text()


def says(log: Path, words: str) -> bool:
    return words in log.read_text(errors="replace")


def told_of_failure(site: Site) -> str:
    """Return what `deploy status` says once the server knows that the run is over."""
    wait_for(lambda: site.last_run().status == "finished:failed", PATIENCE, site.log)
    return " ".join(site.refprotofl("deploy", "status", str(site.folder), code=4).split())


def store(site: Site, number: int) -> Path:
    return site.made.kit(number) / "store"


def joined_once(out: Path) -> bool:
    """Nobody has lost what it had."""
    found = [event for event in read_events(out) if event["event"] == "round"]
    return [event["round"] for event in found if "join" in read_messages(event)] == [1]


def test_nodes_killed_between_phases_and_in_training_come_back_and_change_nothing(
    site: Site, settings: Configs, out: Path, tmp_path: Path
) -> None:
    config = settings(rounds=2, train__local_epochs=LONG)
    here = simulated(config, tmp_path / "here").folder
    begin(site, config, out)
    wait_for(lambda: answered(store(site, 1)) >= (2, PROTOTYPES), PATIENCE, site.log)
    site.kill_node(1)  # its answer is on its disk, and may be under way or not
    site.start_node(1)
    wait_for(lambda: answered(store(site, 2)) >= (2, PROTOTYPES), PATIENCE, site.log)
    process = site.node_process(2)
    before = cpu_seconds(process)
    wait_for(lambda: cpu_seconds(process) > before + 1, PATIENCE, site.log)
    site.kill_node(2)
    assert answered(store(site, 2)) == (2, PROTOTYPES)  # so it was training
    site.start_node(2)
    finish(site, out)
    assert first_difference(here, out) is None
    assert failures(out) == []
    assert joined_once(out)


def test_a_link_that_is_cut_for_20_seconds_changes_nothing(
    site: Site, settings: Configs, undisturbed: Path, out: Path
) -> None:
    begin(site, settings(), out)
    before = site.link.connections
    site.link.cut()
    time.sleep(20)
    assert site.link.connections == before
    site.link.join()
    finish(site, out)
    assert site.link.connections > before
    assert first_difference(undisturbed, out) is None


def test_a_node_that_answers_late_is_left_out_and_takes_part_again(site: Site, settings: Configs, out: Path) -> None:
    begin(site, settings(rounds=4, deadline=LATE, min_replies=2, evaluate__every=9), out)

    process = site.node_process(1)
    os.kill(process, signal.SIGSTOP)
    try:
        wait_for(lambda: "node-1" in str(run_state(site.made, site.run).get("waiting")), PATIENCE, site.log)
        shown = " ".join(site.refprotofl("deploy", "status", str(site.folder)).replace("│", " ").split())
        assert "waiting for node-1 (client 1) since" in shown
        wait_for(lambda: rounds(out) >= 2, PATIENCE, site.log)
    finally:
        os.kill(process, signal.SIGCONT)
    finish(site, out)
    found = failures(out)
    assert {client for _, client, _ in found} == {1}
    assert (1, "late") in {(client, code) for _, client, code in found}
    assert {code for _, _, code in found} <= {"late", "absent"}  # absent: it missed two heartbeats as well
    assert "Absent from round 2: node-1 (client 1): it did not answer in time" in run_log(site)
    assert participants(out)[0] == participants(out)[-1] == [0, 1, 2]
    assert [0, 2] in participants(out)
    assert joined_once(out)


def test_garbage_costs_only_its_sender_the_round(site: Site, settings: Configs, out: Path) -> None:
    begin(site, settings(rounds=ENOUGH, deadline=240, min_replies=2, evaluate__every=9), out)
    log = site.made.kit(1) / "log"
    site.kill_node(1)
    site.start_hostile(1)
    try:
        wait_for(lambda: rounds(out) >= 2 and says(log, "asked: ask"), PATIENCE, site.log)
    finally:
        site.kill_node(1)
        site.start_node(1)
    finish(site, out)
    assert {client for _, client, _ in failures(out)} == {1}
    assert (1, "answer") in {(client, code) for _, client, code in failures(out)}
    assert participants(out)[0] == participants(out)[-1] == [0, 1, 2]
    assert [0, 2] in participants(out)
    assert joined_once(out)


def test_a_full_disk_costs_its_node_the_round_and_nothing_that_it_had(
    site: Site, settings: Configs, out: Path, tmp_path: Path
) -> None:
    config = site.made.kit(2) / "node.toml"
    before = config.read_text()
    with ExitStack() as cleanup:
        try:
            disk = cleanup.enter_context(small_disk(tmp_path / "disk", 6))
        except OSError as problem:
            pytest.skip(str(problem))
        cleanup.callback(site.start_node, 2)
        cleanup.callback(config.write_text, before)
        cleanup.callback(lambda: site.kill_node(2))
        site.kill_node(2)
        config.write_text(before.replace('store = "store"', f'store = "{disk / "store"}"'))
        site.start_node(2)
        begin(site, settings(deadline=240, min_replies=2, evaluate__every=9), out)
        full = fill(disk)
        wait_for(lambda: rounds(out) >= 2, PATIENCE, site.log)
        full.unlink()
        finish(site, out)
    assert {(client, code) for _, client, code in failures(out)} == {(2, "machine")}
    assert participants(out)[0] == participants(out)[-1] == [0, 1, 2]
    assert [0, 1] in participants(out)
    assert joined_once(out)


def test_a_second_node_with_the_same_key_is_kept_out_and_changes_nothing(
    site: Site, settings: Configs, undisturbed: Path, out: Path, tmp_path: Path
) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(site.made.kit(0), twin, ignore=shutil.ignore_patterns("store", "flower", "log"))
    begin(site, settings(), out)
    started = site.start(twin, [str(twin / "start.sh")])
    try:
        wait_for(partial(says, twin / "log", KEPT_OUT), PATIENCE, (twin / "log").read_text)
        finish(site, out)
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait(30)
    assert first_difference(undisturbed, out) is None
    assert not (twin / "store").exists()


def test_a_runs_process_that_is_killed_is_resumed_after_the_last_committed_round(
    site: Site, settings: Configs, undisturbed: Path, out: Path
) -> None:
    begin(site, settings(), out)
    server = process_of(site.made)
    (process,) = processes(f"refprotofl.engines.flower.run_process\0{site.folder}\0{site.run}\0")
    os.kill(process, signal.SIGKILL)
    assert "The last run failed: Its process ended (exit code -9): killed, or out of memory." in told_of_failure(site)
    assert process_of(site.made) == server
    site.submit(settings() | {"out": str(out)})
    finish(site, out)
    assert first_difference(undisturbed, out) is None


def test_a_server_that_is_killed_and_started_again_loses_no_committed_round(
    site: Site, settings: Configs, undisturbed: Path, out: Path
) -> None:
    begin(site, settings(), out)
    server = process_of(site.made)
    assert server is not None
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: process_of(site.made) is None, PATIENCE, site.log)
    found = site.refprotofl("deploy", "status", str(site.folder), code=2)
    assert f"The server of {site.folder} is not running: refprotofl deploy start {site.folder}" in found
    site.refprotofl("deploy", "start", str(site.folder))
    assert "The last run failed: The server was restarted while the run was under way." in told_of_failure(site)
    wait_for(lambda: not processes(f"refprotofl.engines.flower.run_process\0{site.folder}"), PATIENCE, site.log)
    site.submit(settings() | {"out": str(out)})
    finish(site, out)
    assert first_difference(undisturbed, out) is None


def test_a_revoked_key_is_kept_out_in_mid_run_until_a_new_one_is_admitted(
    site: Site, settings: Configs, out: Path
) -> None:
    """The run continues without it. Its node says one sentence, and takes part again with a new key."""
    kit = site.made.kit(0)
    begin(site, settings(rounds=ENOUGH, min_replies=2, evaluate__every=9), out)
    (kit / "log").write_text("")
    site.refprotofl("deploy", "revoke", str(site.folder), "node-0")
    wait_for(lambda: [1, 2] in participants(out), PATIENCE, site.log)
    wait_for(partial(says, kit / "log", WAITS), PATIENCE, (kit / "log").read_text)
    assert not site.is_online("node-0")
    site.refprotofl("deploy", "admit", str(site.folder), "node-0", str(kit / "node.key.pub"), code=2)
    site.kill_node(0)
    for name in ("node.key", "node.key.pub", "log"):
        (kit / name).unlink()
    site.start_node(0)
    wait_for(partial(says, kit / "log", WAITS), PATIENCE, (kit / "log").read_text)
    assert "FIX  admission: this node's key is not admitted" in site.refprotofl("deploy", "doctor", str(kit), code=2)
    site.admit(0)
    wait_for(lambda: site.is_online("node-0"), PATIENCE, (kit / "log").read_text)
    finish(site, out)
    assert {(client, code) for _, client, code in failures(out)} == {(0, "absent")}
    log = (kit / "log").read_text()
    assert log.count(WAITS) == 1
    assert "Traceback" not in log


def test_a_wrong_authority_is_kept_out(site: Site, tmp_path: Path) -> None:
    """A node does not talk to a server that its CA does not vouch for. The last case: this one can do no more."""
    site.kill_node(1)
    kit = site.made.kit(1)
    (kit / "log").unlink()
    other = Site(tmp_path / "other")
    other.refprotofl("deploy", "init", str(other.folder), "--nodes", "1", "--host", "127.0.0.1")
    shutil.copy(other.made.server / "ca.crt", kit / "ca.crt")
    found = site.refprotofl("deploy", "doctor", str(kit), code=2)
    assert "has no certificate signed by ca.crt" in found
    site.start_node(1)
    wait_for(partial(says, kit / "log", "CERTIFICATE_VERIFY_FAILED"), PATIENCE, (kit / "log").read_text)
    assert not says(kit / "log", "Connected")
    assert not says(kit / "log", "Traceback")
