"""The server's process: where it is looked for, what becomes of one that does not come up, what Flower says of it."""

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.flower.breaking import processes
from tests.flower.loopback import free_port
from tests.flower.site import Site

from refprotofl.cli import main
from refprotofl.deploy import server
from refprotofl.deploy.kits import Deployment, write_deployment
from refprotofl.errors import DataError, InputError, MachineError

Programs = Callable[[str], None]
Status = Callable[[Deployment], tuple[int, str]]


@pytest.fixture
def made(tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path / "site", "127.0.0.1", free_port(), 1, True)
    write_deployment(deployment)
    return deployment


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Takes the place of every program of Flower's."""
    path = tmp_path / "program"
    monkeypatch.setattr(server, "find_program", lambda name: str(path))
    monkeypatch.setattr(server, "superlink", lambda: [str(path)])

    def write(script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Status:
    """The command's exit code and complaints, with a SuperLink that seems to run."""
    monkeypatch.setattr(server, "process_of", lambda made: 1)

    def call(made: Deployment) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["refprotofl", "deploy", "status", str(made.folder)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capfd.readouterr().err

    return call


def test_a_server_is_found_on_the_address_that_it_listens_on(tmp_path: Path) -> None:
    """By its start, and by Flower's own commands, over TLS."""
    site = Site(tmp_path / "site")
    place = ["--host", "127.0.0.2", "--port", str(free_port())]
    site.refprotofl("deploy", "init", str(site.folder), "--nodes", "1", *place)
    try:
        assert "on 127.0.0.2:" in site.refprotofl("deploy", "start", str(site.folder), "--bind", "127.0.0.2")
        assert "0 nodes" in site.refprotofl("deploy", "status", str(site.folder))
    finally:
        site.close()


@pytest.mark.parametrize("script", ["trap '' HUP; sleep 600 & sleep 600", "sleep 600 & echo 'no such address'; exit 1"])
def test_a_server_that_does_not_come_up_is_ended_with_all_that_it_started(
    made: Deployment, program: Programs, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    started = made.server / "started"
    program(f"touch '{started}'; " + script.replace("sleep 600", f"sleep 600.{made.port}"))
    monkeypatch.setattr(server, "STARTING", 1.0)
    with pytest.raises(MachineError, match=r"The SuperLink did not start, it (ended at once|does not answer on 127)"):
        server.start(made, "127.0.0.1")
    assert started.exists()
    until = time.monotonic() + 60
    while processes(f"600.{made.port}") and time.monotonic() < until:
        time.sleep(0.1)
    assert processes(f"600.{made.port}") == []
    assert not (made.server / "superlink.pid").exists()


def test_an_address_to_listen_on_is_read_before_anything_is_started(made: Deployment) -> None:
    with pytest.raises(InputError, match=re.escape("--bind 127.0.0.1:80: it has a colon and is no IPv6 address")):
        server.start(made, "127.0.0.1:80")


def test_a_deployment_whose_connection_is_gone_is_told(made: Deployment) -> None:
    (made.home / "config.toml").write_text("")
    with pytest.raises(DataError, match=r"config\.toml is damaged: it names no SuperLink refprotofl"):
        server.start(made, "127.0.0.1")


def test_what_flower_says_of_its_failure_is_told(made: Deployment, program: Programs) -> None:
    program(
        r"""printf %s '{"success": false, "error-message": "Connection to the\nSuperLink is unavailable."}'; exit 1"""
    )
    with pytest.raises(MachineError, match=r"flwr supernode list failed: Connection to the SuperLink is unavailable\."):
        server.ask_flower(made, "supernode", "list")


def test_a_command_of_flower_that_does_not_answer_is_told(
    made: Deployment, program: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    program("exec sleep 60")
    monkeypatch.setattr(server, "ANSWERING", 0.5)
    with pytest.raises(MachineError, match=r"flwr list has not answered in 0.5 seconds; .*superlink.log"):
        server.ask_flower(made, "list")


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ("No heartbeat received from the task", "its ServerApp ended without a word, killed or out of memory."),
        ("ServerApp failed with exception: rounds = -1 is too small.", "rounds = -1 is too small."),
    ],
)
def test_the_status_says_why_the_last_run_failed_and_what_to_do(
    made: Deployment, program: Programs, status: Status, details: str, told: str
) -> None:
    runs = {"success": True, "runs": [{"run-id": "1", "status": "finished:failed", "status-details": details}]}
    nodes = {"success": True, "nodes": []}
    program(f"""if [ "$1" = list ]; then printf %s '{json.dumps(runs)}'; else printf %s '{json.dumps(nodes)}'; fi""")
    code, errors = status(made)
    assert code == 4
    assert errors == (
        f"error: The last run failed: {told} Once that is mended, flwr run with the same out goes on with it.\n"
    )


def test_the_status_fails_where_flower_does(made: Deployment, program: Programs, status: Status) -> None:
    """It does not show that there are no nodes."""
    program("""printf %s '{"success": false, "error-message": "no such SuperLink"}'""")
    assert status(made) == (4, "error: flwr supernode list failed: no such SuperLink\n")
