"""Faults on loopback with real SuperLink and SuperNodes. They take minutes: `make test-flower-faults`.

One deployment for all: every case is a run of its own over the same three nodes, and leaves them as they were.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from tests.flower.breaking import Link, answered, below, cpu_seconds, fill, garbage, processes, signal_all, small_disk
from tests.flower.conftest import CLIENTS
from tests.flower.deploying import Configs, failures, participants, simulated
from tests.flower.loopback import free_port
from tests.flower.site import PATIENCE, Site, wait_for

from refprotofl.deploy.server import ask_flower, names_of_nodes, process_of
from refprotofl.records.events import read_events
from refprotofl.records.rounds import read_messages
from refprotofl.records.verify import first_difference

pytestmark = pytest.mark.skipif(os.environ.get("REFPROTOFL_FAULTS") != "full", reason="takes minutes")

LATE = 60  # seconds of a deadline that a node misses, and the others keep on a busy machine
LONG = 60  # epochs that take a node some seconds of computing
KEPT_OUT = "Failed to activate SuperNode"  # as a node hears it
PROTOTYPES = 1  # the first phase of a round; training is the second


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


def says(log: Path, words: str) -> bool:
    return words in log.read_text(errors="replace")


def told_of_failure(site: Site) -> str:
    """What `deploy status` says once Flower knows that the run is over."""
    wait_for(lambda: site.last_run()["status"] == "finished:failed", 120, site.log)
    return " ".join(site.refprotofl("deploy", "status", str(site.folder), code=4).split())


def refusals(site: Site, public: Path) -> list[str]:
    """Why the server did not let a key in, as its log has it."""
    key = load_ssh_public_key(public.read_bytes()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    log = (site.made.server / "superlink.log").read_text(errors="replace")
    return re.findall(re.escape(f"{key!r}, exception: ") + "(.*)", log)


def is_online(site: Site, name: str) -> bool:
    names = names_of_nodes(site.made)
    return any(
        names.get(one["node-id"]) == name and one["status"] == "online"
        for one in ask_flower(site.made, "supernode", "list")["nodes"]
    )


def store(site: Site, number: int) -> Path:
    return site.made.kit(number) / "store"


def worker(site: Site, number: int) -> list[int]:
    return processes(str(store(site, number) / "worker.sock"))


def joined_once(out: Path) -> bool:
    """Nobody has lost what it had."""
    told = [event for event in read_events(out) if event["event"] == "round"]
    return [event["round"] for event in told if "join" in read_messages(event)] == [1]


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
    (process,) = worker(site, 2)
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
    begin(site, settings(deadline=LATE, min_replies=2, evaluate__every=9), out)

    def stands_still() -> bool:
        """Its workers, the one that replaces a silent one too."""
        signal_all(worker(site, 1), signal.SIGSTOP)
        return rounds(out) >= 2

    try:
        wait_for(stands_still, PATIENCE, site.log)
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
    with ExitStack() as cleanup:
        try:
            disk = cleanup.enter_context(small_disk(tmp_path / "disk", 6))
        except OSError as problem:
            pytest.skip(str(problem))
        cleanup.callback(site.start_node, 2)
        cleanup.callback(config.write_text, before)
        cleanup.callback(lambda: signal_all(processes(str(disk)), signal.SIGKILL))
        cleanup.callback(lambda: site.kill_node(2))
        site.kill_node(2)
        config.write_text(before.replace('store = "store"', f'store = "{disk / "store"}"'))
        site.start_node(2)
        begin(site, settings(deadline=120, min_replies=2, evaluate__every=9), out)
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
    with (twin / "log").open("ab") as log:
        started = subprocess.Popen(
            [str(twin / "start.sh")],
            env={**site.env, "NODE_PORT": str(free_port())},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_for(partial(says, twin / "log", KEPT_OUT), 120, (twin / "log").read_text)
        assert refusals(site, twin / "node.key.pub")[-1].endswith("could not be activated.")  # it is known, and online
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
    assert "The last run failed: its ServerApp ended without a word, killed or out of memory." in told_of_failure(site)
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
    told = site.refprotofl("deploy", "status", str(site.folder), code=2)
    assert f"The SuperLink of {site.folder} does not run: refprotofl deploy start {site.folder}." in told
    site.refprotofl("deploy", "start", str(site.folder), "--bind", "127.0.0.1")
    assert "The last run failed: its ServerApp" in told_of_failure(site)
    site.submit(settings() | {"out": str(out)})
    finish(site, out)
    assert first_difference(undisturbed, out) is None


def test_an_unregistered_key_is_kept_out_until_it_is_registered(site: Site) -> None:
    """The server knows why; the node hears that it is not let in, and tries again."""
    site.kill_node(0)
    kit = site.made.kit(0)
    for name in ("node.key", "node.key.pub", "log"):
        (kit / name).unlink()
    site.start_node(0)
    wait_for(partial(says, kit / "log", KEPT_OUT), 120, (kit / "log").read_text)
    assert set(refusals(site, kit / "node.key.pub")) == {"No SuperNode found with the given public key."}
    assert not is_online(site, "late")
    site.flwr("supernode", "register", str(kit / "node.key.pub"), "refprotofl", "--name", "late")
    wait_for(lambda: is_online(site, "late"), 120, (kit / "log").read_text)


def test_a_wrong_authority_is_kept_out(site: Site, tmp_path: Path) -> None:
    """A node does not talk to a server that its CA does not vouch for. The last case: this one can do no more."""
    site.kill_node(1)
    kit = site.made.kit(1)
    (kit / "log").unlink()
    other = Site(tmp_path / "other")
    other.refprotofl("deploy", "init", str(other.folder), "--nodes", "1", "--host", "127.0.0.1")
    shutil.copy(other.made.server / "ca.crt", kit / "ca.crt")
    told = site.refprotofl("deploy", "doctor", str(kit), code=2)
    assert "has no certificate that ca.crt vouches for" in told
    site.start_node(1)
    wait_for(partial(says, kit / "log", "CERTIFICATE_VERIFY_FAILED"), 120, (kit / "log").read_text)
    assert not says(kit / "log", KEPT_OUT)
