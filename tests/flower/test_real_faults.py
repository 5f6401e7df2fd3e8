"""Faults on loopback with real SuperLink and SuperNodes. They take minutes: `make test-flower-faults`.

One deployment for all: every case is a run of its own over the same three nodes, and leaves them as they were.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.flower.breaking import Link, answered, below, fill, garbage, processes, signal_all, small_disk
from tests.flower.conftest import CLIENTS
from tests.flower.deploying import Configs, failures, participants
from tests.flower.loopback import free_port
from tests.flower.site import PATIENCE, Site, wait_for

from refprotofl.deploying.server import process_of
from refprotofl.records.events import read_events
from refprotofl.records.rounds import read_messages
from refprotofl.records.verify import first_difference

pytestmark = pytest.mark.skipif(os.environ.get("REFPROTOFL_FAULTS") != "full", reason="takes minutes")

LATE = 60  # seconds of a deadline that a node misses, and the others keep on a busy machine


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, apart: Path) -> Iterator[Site]:
    """Node 1 is connected through a link that can be cut."""
    site = Site(tmp_path_factory.mktemp("faults") / "site")
    site.begin()
    link = site.link = Link(site.made.port)
    script = site.made.kit(1) / "start.sh"
    script.write_text(script.read_text().replace(f":{site.made.port} ", f":{link.port} "))
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
    """A run that has committed so many rounds."""
    site.submit(config | {"out": str(out)})
    wait_for(lambda: rounds(out) >= after, PATIENCE, site.log)


def finish(site: Site, out: Path) -> None:
    wait_for((out / "summary.json").exists, PATIENCE, site.log)


def is_kept_out(log: Path) -> bool:
    """Flower says that it ends, or that it tries again."""
    return any(words in log.read_text(errors="replace") for words in ("Exit Code", "retrying"))


def store(site: Site, number: int) -> Path:
    return site.made.kit(number) / "store"


def worker(site: Site, number: int) -> list[int]:
    return processes(str(store(site, number) / "worker.sock"))


def joined_once(out: Path) -> bool:
    """Nobody has lost what it had."""
    told = [event for event in read_events(out) if event["event"] == "round"]
    return [event["round"] for event in told if "join" in read_messages(event)] == [1]


def test_nodes_killed_between_phases_and_in_training_come_back_and_change_nothing(
    site: Site, settings: Configs, undisturbed: Path, out: Path
) -> None:
    begin(site, settings(), out)
    wait_for(lambda: answered(store(site, 2)) >= (2, 1), PATIENCE, site.log)
    signal_all(worker(site, 2), signal.SIGSTOP)  # it gets the request to train, and does not come to its end
    wait_for(lambda: answered(store(site, 1)) >= (2, 1), PATIENCE, site.log)
    site.kill_node(1)  # its answer is on its disk, and may be under way or not
    assert answered(store(site, 1))[0] == 2
    site.start_node(1)
    wait_for(lambda: any(one in processes("flwr-clientapp") for one in below(site.started[2].pid)), PATIENCE, site.log)
    site.kill_node(2)
    assert answered(store(site, 2))[0] == 2
    site.start_node(2)
    finish(site, out)
    assert first_difference(undisturbed, out) is None
    assert failures(out) == []


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
    begin(site, settings(deadline=LATE, min_replies=2, evaluate__every=9), out)
    signal_all(worker(site, 1), signal.SIGSTOP)
    try:
        wait_for(lambda: rounds(out) >= 2, PATIENCE, site.log)
    finally:
        signal_all(worker(site, 1), signal.SIGCONT)
    finish(site, out)
    told = failures(out)
    assert {(client, code) for _, client, code in told} == {(1, "late")}
    assert participants(out)[0] == participants(out)[-1] == [0, 1, 2]
    assert [0, 2] in participants(out)
    assert joined_once(out)


def test_garbage_costs_its_sender_the_round_and_nobody_else(site: Site, settings: Configs, out: Path) -> None:
    begin(site, settings(deadline=120, min_replies=2, evaluate__every=9), out)
    with garbage(store(site, 1)) as asked:
        wait_for(lambda: rounds(out) >= 2, PATIENCE, site.log)
    finish(site, out)
    assert "ask" in asked
    assert {(client, code) for _, client, code in failures(out)} == {(1, "answer")}
    assert participants(out)[0] == participants(out)[-1] == [0, 1, 2]
    assert [0, 2] in participants(out)
    assert joined_once(out)


def test_a_full_disk_costs_its_node_the_round_and_nothing_that_it_had(
    site: Site, settings: Configs, out: Path, tmp_path: Path
) -> None:
    config = site.made.kit(2) / "node.toml"
    before = config.read_text()
    try:
        with small_disk(tmp_path / "disk", 6) as disk:
            site.kill_node(2)
            config.write_text(before.replace('store = "store"', f'store = "{disk / "store"}"'))
            site.start_node(2)
            begin(site, settings(deadline=120, min_replies=2, evaluate__every=9), out)
            full = fill(disk)
            wait_for(lambda: rounds(out) >= 2, PATIENCE, site.log)
            full.unlink()
            finish(site, out)
            site.kill_node(2)
            signal_all(processes(str(disk)), signal.SIGKILL)
    except OSError as problem:
        pytest.skip(str(problem))
    finally:
        config.write_text(before)
        if 2 not in site.started:
            site.start_node(2)
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
    with (twin / "log").open("ab") as log:
        started = subprocess.Popen(
            [str(twin / "start.sh")],
            env={**site.env, "NODE_PORT": str(free_port())},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_for(partial(is_kept_out, twin / "log"), 120, (twin / "log").read_text)
        finish(site, out)
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait(30)
    assert first_difference(undisturbed, out) is None
    assert not (twin / "store").exists()


def test_a_serverapp_that_is_killed_alone_goes_on_after_the_last_committed_round(
    site: Site, settings: Configs, undisturbed: Path, out: Path
) -> None:
    begin(site, settings(), out)
    superlink = process_of(site.made)
    assert superlink is not None
    apps = [one for one in below(superlink) if one in processes("flwr-serverapp")]
    assert apps
    signal_all(apps, signal.SIGKILL)
    assert process_of(site.made) == superlink
    site.submit(settings() | {"out": str(out)})
    finish(site, out)
    assert first_difference(undisturbed, out) is None


def test_a_superlink_that_is_killed_and_started_again_loses_no_committed_round(
    site: Site, settings: Configs, undisturbed: Path, out: Path
) -> None:
    begin(site, settings(), out)
    superlink = process_of(site.made)
    assert superlink is not None
    os.kill(superlink, signal.SIGKILL)
    wait_for(lambda: process_of(site.made) is None, 30, site.log)
    site.refprotofl("deploy", "start", str(site.folder), "--bind", "127.0.0.1")
    site.submit(settings() | {"out": str(out)})
    finish(site, out)
    assert first_difference(undisturbed, out) is None


def test_an_unregistered_key_and_a_wrong_authority_are_kept_out(site: Site, tmp_path: Path) -> None:
    """The last case: two of the nodes can do no more."""
    for number, spoil in ((0, "node.key"), (1, "ca.crt")):
        site.kill_node(number)
        kit = site.made.kit(number)
        (kit / spoil).unlink()
        (kit / "log").write_text("")
        if spoil == "ca.crt":
            other = Site(tmp_path / "other")
            other.refprotofl("deploy", "init", str(other.folder), "--nodes", "1", "--host", "127.0.0.1")
            shutil.copy(other.made.server / "ca.crt", kit / "ca.crt")
            told = site.refprotofl("deploy", "doctor", str(kit), code=2)
            assert "has no certificate that ca.crt vouches for" in told
        else:
            (kit / "node.key.pub").unlink()
        site.start_node(number)
    for number in (0, 1):
        log = site.made.kit(number) / "log"
        wait_for(partial(is_kept_out, log), 120, log.read_text)
