"""The server's process: where it is looked for, what becomes of one that does not come up, what Flower says of it."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.flower.breaking import processes
from tests.flower.loopback import free_port
from tests.flower.site import Site

from refprotofl.deploying import server
from refprotofl.deploying.kits import Deployment, write_deployment
from refprotofl.errors import InputError, MachineError

Programs = Callable[[str], None]


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

    def write(script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


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
    program(script.replace("sleep 600", f"sleep 600.{made.port}"))
    monkeypatch.setattr(server, "STARTING", 1.0)
    with pytest.raises(MachineError, match=r"The SuperLink did not start, it (ended at once|does not answer on 127)"):
        server.start(made, "127.0.0.1")
    until = time.monotonic() + 10
    while processes(f"600.{made.port}") and time.monotonic() < until:
        time.sleep(0.1)
    assert processes(f"600.{made.port}") == []
    assert not (made.server / "superlink.pid").exists()


def test_an_address_to_listen_on_is_read_before_anything_is_started(made: Deployment) -> None:
    with pytest.raises(InputError, match=re.escape("--bind 127.0.0.1:80: it has a colon and is no IPv6 address")):
        server.start(made, "127.0.0.1:80")


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
