"""Faults with a real broker and real nodes. A part is tried by default, everything with REFPROTOFL_FAULTS=full.

One deployment for all: every case is a run of its own over the same three nodes, and leaves them as they were.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.deployments import CLIENTS, Configs, failures, participants, simulated
from tests.edge.hostile import Hostile
from tests.edge.site import PATIENCE, Site, wait_for
from tests.edge.test_real_deployment import begin, finish, joined_once, rounds
from tests.flower.breaking import Link

from refprotofl.deploy import certificates
from refprotofl.engines.mqtt import identities
from refprotofl.records.verify import first_difference

full = pytest.mark.skipif(os.environ.get("REFPROTOFL_FAULTS") != "full", reason="takes minutes")
LATE = 20  # seconds of a deadline that a node misses
LIBFAKETIME = [*Path("/usr/lib").glob("*/faketime/libfaketime.so.1")]
HOUR = 3600


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
        for number in range(CLIENTS):
            wait_for(lambda name=f"node-{number}": site.is_online(name), PATIENCE, site.log)  # type: ignore[misc]
        yield site
    finally:
        site.close()
        link.close()


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "there"


def says(site: Site, number: int, words: str) -> bool:
    return words in (site.made.kit(number) / "log").read_text(errors="replace")


@pytest.mark.parametrize("seconds", [5, pytest.param(20, marks=full)])
def test_a_link_that_is_cut_for_a_while_changes_nothing(
    site: Site, settings: Configs, undisturbed: Path, out: Path, seconds: int
) -> None:
    begin(site, settings(), out)
    before = site.link.connections
    site.link.cut()
    time.sleep(seconds)
    site.link.join()
    finish(site, out)
    assert site.link.connections > before
    assert first_difference(undisturbed, out) is None
    assert failures(out) == []


def test_a_hostile_node_costs_itself_its_turn(site: Site, settings: Configs, out: Path) -> None:
    """Garbage by the thousand, messages that are too large, payloads without an end and of others."""
    site.kill_node(2)
    wait_for(lambda: not site.is_online("node-2"), PATIENCE, site.log)
    hostile = Hostile(site.made.kit(2), site.made.keys.port)
    try:
        wait_for(lambda: site.is_online("node-2"), PATIENCE, site.log)
        site.submit(settings(rounds=3, deadline=8, min_replies=2, evaluate__every=9) | {"out": str(out)})
        wait_for(lambda: rounds(out) >= 2, PATIENCE, site.log)
        memory = [peak_memory(process) for process in site.run_processes()]
        finish(site, out)
    finally:
        hostile.close()
        site.start_node(2)
    assert hostile.sent >= 4_000
    assert participants(out)[-1] == [0, 1]
    assert {client for _, client, _ in failures(out)} == {2}
    log = (site.made.runs / f"{site.run}.log").read_text()
    assert "sends unrequested messages: it is cut off for a minute" in log
    assert all(one < 700 for one in memory)
    wait_for(lambda: site.is_online("node-2"), PATIENCE, site.log)


def peak_memory(process: int) -> float:
    """Return the highest memory of a process in MB; 0 if it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1000
    return 0.0


def test_a_node_whose_certificate_expired_comes_back_once_it_is_renewed_and_has_the_last_model(
    site: Site, settings: Configs, out: Path, apart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = site.made.kit(2)
    site.kill_node(2)
    monkeypatch.setattr(certificates, "NODE_DAYS", -1)
    monkeypatch.setattr(certificates, "SLACK", certificates.SLACK * 72)
    identities.renew(site.made, ["node-2"])
    monkeypatch.undo()
    site.start_node(2)
    wait_for(lambda: says(site, 2, "This node's certificate has expired"), PATIENCE, site.log)
    assert "node.crt expired on" in site.refprotofl("deploy", "doctor", str(kit), code=2)
    found = site.refprotofl("deploy", "status", str(site.folder))
    assert "node-2 has expired" in " ".join(found.split())
    config = settings(method="fedavg", share="full", rounds=2, min_replies=2, deadline=5, evaluate__clients=1)
    site.submit(config | {"out": str(out)})
    finish(site, out)
    assert participants(out)[-1] == [0, 1]
    assert "Renewed node-2." in site.refprotofl("deploy", "renew", str(site.folder))
    wait_for(lambda: site.is_online("node-2"), PATIENCE, site.log)
    wait_for(lambda: says(site, 2, "The shared part after round 2 has come"), PATIENCE, site.log)
    labels = out.parent / "labels.csv"
    site.refprotofl("predict", str(kit / "store"), str(apart / "client-2.npz"), "--out", str(labels))
    assert len(labels.read_text().splitlines()) > 10
    assert "Fine-tuned the model of round 2" in site.refprotofl("node", "finetune", str(kit), "--epochs", "1")


@full
@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.skipif(not LIBFAKETIME, reason="libfaketime is not installed")
def test_a_clock_that_is_wrong_by_an_hour_changes_nothing(
    site: Site, settings: Configs, undisturbed: Path, out: Path, hours: int
) -> None:
    site.kill_node(0)
    site.start_node(
        0, {"LD_PRELOAD": str(LIBFAKETIME[0]), "FAKETIME": f"{hours:+d}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    )
    try:
        site.submit(settings() | {"out": str(out)})
        finish(site, out)
    finally:
        site.kill_node(0)
        site.start_node(0)
    assert first_difference(undisturbed, out) is None
    assert failures(out) == []


@full
def test_of_two_devices_with_a_copied_kit_the_newer_is_served_and_the_older_says_so(
    site: Site, settings: Configs, out: Path, tmp_path: Path
) -> None:
    begin(site, settings(rounds=4, deadline=120, evaluate__every=9), out)
    copy = tmp_path / "copy"
    shutil.copytree(site.made.kit(0), copy, ignore=shutil.ignore_patterns("store", "log"))
    twin = site.start_kit(copy)
    try:
        wait_for(lambda: says(site, 0, "Another node with the same certificate is online"), PATIENCE, site.log)
        finish(site, out)
    finally:
        os.killpg(twin.pid, signal.SIGKILL)
        twin.wait()
        site.kill_node(0)
        site.start_node(0)
    assert {client for _, client, _ in failures(out)} <= {0}
    assert participants(out)[-1] == [0, 1, 2]


@full
def test_a_node_that_answers_late_is_left_out_and_takes_part_again(site: Site, settings: Configs, out: Path) -> None:
    begin(site, settings(rounds=4, deadline=LATE, min_replies=2, evaluate__every=9), out)
    process = site.node_process(0)
    os.kill(process, signal.SIGSTOP)
    try:
        wait_for(lambda: rounds(out) >= 2, PATIENCE, site.log)
    finally:
        os.kill(process, signal.SIGCONT)
    finish(site, out)
    assert {client for _, client, _ in failures(out)} == {0}
    assert participants(out)[-1] == [0, 1, 2]
    assert joined_once(out)


@full
def test_a_lost_disk_makes_a_node_join_again(site: Site, settings: Configs, out: Path, undisturbed: Path) -> None:
    begin(site, settings(), out)
    site.kill_node(2)
    shutil.rmtree(site.made.kit(2) / "store")
    site.start_node(2)
    finish(site, out)
    assert not joined_once(out)
    assert first_difference(undisturbed, out) is not None
    assert participants(out)[-1] == [0, 1, 2]


@full
def test_a_model_of_45_mb_crosses_a_link_that_breaks_every_10_seconds(
    site: Site, settings: Configs, out: Path, tmp_path: Path
) -> None:
    """Down and up; what has arrived is not sent again."""
    config = settings(
        method="fedavg", share="full", rounds=1, model__name="resnet18", first_weights="sent", deadline=1800
    )
    config |= {"train.epochs": 1, "train.local-epochs": "", "evaluate.clients": 1}
    site.submit(config | {"out": str(out)})
    until = time.monotonic() + 1800
    while not (out / "summary.json").exists():
        assert time.monotonic() < until, site.log()
        time.sleep(10)
        site.link.cut()
        site.link.join()
    assert failures(out) == []
    here = simulated(config, tmp_path / "here")
    assert first_difference(here.folder, out) is None
