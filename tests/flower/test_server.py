"""The server's process: where it listens, what becomes of one that does not come up, and what its status says."""

import os
import re
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.flower.breaking import processes, shift_clock
from tests.flower.loopback import free_port
from tests.flower.operators import FakeOperator
from tests.flower.site import Site as RealSite

from refprotofl.cli import main
from refprotofl.core.errors import InputError, MachineError
from refprotofl.deploy import server_process
from refprotofl.deploy.admission import Admissions, Admitted, write_admissions
from refprotofl.deploy.operator import NodeStatus, RunStatus
from refprotofl.deploy.site import Site, SiteKeys, create_site
from refprotofl.deploy.status import StatusCallback, Wait

Status = Callable[[Site], tuple[int, str, str]]
Program = Callable[[str], None]


def make(folder: Path, *, insecure: bool = True) -> Site:
    return create_site(
        folder,
        SiteKeys(host="127.0.0.1", port=free_port(), operator_port=free_port(), nodes=2, insecure=insecure),
    )


@pytest.fixture
def made(tmp_path: Path) -> Site:
    return make(tmp_path / "site")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Takes the place of the server's program."""
    path = tmp_path / "program"
    monkeypatch.setattr(sys, "executable", str(path))

    def write(script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> FakeOperator:
    """Takes the place of the server's answers, for commands."""
    fake = FakeOperator()
    monkeypatch.setattr("refprotofl.engines.flower.control.FlowerOperator", lambda site: fake)
    return fake


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Status:
    """The command's exit code, output and complaints, with a server that seems to run."""
    monkeypatch.setattr(server_process, "process_of", lambda site: 1)
    for name in server_process.environment(make(tmp_path / "unused")).keys() - os.environ.keys():
        monkeypatch.setenv(name, "")  # so that what the command sets is put back

    def call(site: Site) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["refprotofl", "deploy", "status", str(site.folder)])
        with pytest.raises(SystemExit) as ended:
            main()
        found = capfd.readouterr()
        return int(ended.value.code or 0), " ".join(found.out.split()), found.err

    return call


def test_a_server_is_found_on_the_address_that_it_listens_on(tmp_path: Path) -> None:
    """Check certificates at the server's start and in the operator's commands, over TLS."""
    site = RealSite(tmp_path / "site")
    ports = ["--port", str(free_port()), "--operator-port", str(free_port())]
    site.refprotofl("deploy", "init", str(site.folder), "--nodes", "1", "--host", "127.0.0.2", *ports)
    try:
        assert "Devices reach it on 127.0.0.2:" in site.refprotofl("deploy", "start", str(site.folder))
        assert "0 nodes" in site.refprotofl("deploy", "status", str(site.folder))
        assert "is running already" in site.refprotofl("deploy", "start", str(site.folder), code=2)
    finally:
        site.close()
    assert "is not running: refprotofl deploy start" in site.refprotofl("deploy", "status", str(site.folder), code=2)


@pytest.mark.parametrize("script", ["trap '' HUP; sleep 600 & sleep 600", "sleep 600 & echo 'no such address'; exit 1"])
def test_a_server_that_does_not_come_up_is_ended_with_all_that_it_started(
    made: Site, program: Program, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    started, mark = made.server / "started", f"600.{made.keys.port}"
    program(f"touch '{started}'; " + script.replace("sleep 600", f"sleep {mark}"))
    monkeypatch.setattr(server_process, "STARTING", 5.0)
    with pytest.raises(MachineError, match=r"The server did not start, it (ended at once|does not answer on 127)"):
        server_process.start(made)
    assert started.exists()
    until = time.monotonic() + 120
    while processes(mark) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes(mark) == []
    assert not (made.server / "server.pid").exists()


@pytest.mark.parametrize("asked", ["127.0.0.1:80", "0.0.0.0"])
def test_an_address_to_listen_on_is_read_before_anything_is_started(made: Site, asked: str) -> None:
    """An insecure site listens on loopback only."""
    words = {
        "127.0.0.1:80": "--bind 127.0.0.1:80: it has a colon and is no IPv6 address",
        "0.0.0.0": "An insecure site listens on this machine only",
    }
    with pytest.raises(InputError, match=re.escape(words[asked])):
        server_process.start(made, asked)
    assert not made.log.exists()


def test_a_site_whose_host_is_another_machines_asks_for_the_address_to_listen_on(tmp_path: Path) -> None:
    keys = SiteKeys(host="192.0.2.1", port=free_port(), operator_port=free_port(), nodes=1)  # of no machine
    with pytest.raises(InputError, match=r"192\.0\.2\.1 is not an address of this machine: name the one to listen on"):
        server_process.start(create_site(tmp_path / "site", keys))


def test_a_port_that_is_taken_is_reported_before_the_server_starts(made: Site) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", made.keys.operator_port))
        other.listen()
        with pytest.raises(InputError, match=r"Something else listens on port \d+: stop it, or change operator-port"):
            server_process.start(made)


@pytest.mark.parametrize(
    ("days", "words"), [(-900, r"server\.crt expired on \d{4}-\d\d-\d\d"), (+3, r"ca\.crt is not valid before")]
)
def test_certificates_outside_their_dates_are_named_by_start_and_by_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: Status,
    operator: FakeOperator,
    days: int,
    words: str,
) -> None:
    shift_clock(monkeypatch, days)
    site = make(tmp_path / "site", insecure=False)
    monkeypatch.undo()
    monkeypatch.setattr("refprotofl.engines.flower.control.FlowerOperator", lambda site: operator)
    with pytest.raises(InputError, match=words):
        server_process.start(site)
    assert not site.log.exists()
    monkeypatch.setattr(server_process, "process_of", lambda site: 1)
    code, _, warnings = status(site)
    assert code == 0
    assert re.search(words, warnings)


def test_the_status_says_why_the_last_run_failed_and_what_to_do(
    made: Site, operator: FakeOperator, status: Status
) -> None:
    operator.known_runs = [RunStatus(7, "finished:failed", "rounds = -1 is too small.", 2)]
    code, shown, errors = status(made)
    assert code == 4
    assert "0 nodes" in shown
    assert errors == (
        "error: The last run failed: rounds = -1 is too small. Run again with the same --out to resume it.\n"
    )


def test_the_status_names_nodes_that_are_waited_for_and_absent_ones_with_the_reason(
    tmp_path: Path, operator: FakeOperator, status: Status
) -> None:
    site = make(tmp_path / "secure", insecure=False)
    write_admissions(site, Admissions({"node-0": Admitted("0" * 64, 0), "node-1": Admitted("1" * 64, 1)}, []))
    operator.known_nodes = [
        NodeStatus(5, "node-0", "0" * 64, "online"),
        NodeStatus(6, "node-1", "1" * 64, "registered"),
    ]
    operator.known_runs = [RunStatus(8, "running"), RunStatus(7, "finished:completed")]
    progress = StatusCallback(site.runs / "8.json", say=lambda line: None)
    progress.waiting([Wait("node-0 (client 0)", "train", time.time())])
    progress.absent(1, "node-1 (client 1)", 2, "late")
    code, shown, errors = status(site)
    assert (code, errors) == (0, "")
    assert re.search(r"node-0 \W 0 \W online", shown)
    assert re.search(r"node-1 \W 1 \W never connected", shown)
    words = " ".join(re.findall(r"[^\s│]+", shown))  # a cell may have several lines
    assert "waiting for node-0 (client 0) since" in words
    assert "absent: node-1 (client 1): it did not answer in time" in words


def test_the_status_fails_where_the_server_does(made: Site, operator: FakeOperator, status: Status) -> None:
    """It does not show that there are no nodes."""
    operator.trouble = MachineError("The server refused the request (HTTP 500).")
    code, shown, errors = status(made)
    assert (code, errors) == (4, "error: The server refused the request (HTTP 500).\n")
    assert "nodes" not in shown
