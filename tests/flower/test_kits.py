"""What `deploy init` writes for a node, and where."""

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.flower.loopback import BIN, ROOT
from tests.flower.site import wait_for

from refprotofl.deploy.kits import INSECURE, QUIET, Deployment, write_deployment
from refprotofl.errors import InputError

TOOLS = ("sh", "dirname", "mkdir", "sleep", "touch")


@pytest.fixture
def made(tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path / "site", "127.0.0.1", 8443, 1, True)
    write_deployment(deployment)
    return deployment


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH with what every system has."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in TOOLS:
        (folder / name).symlink_to(next(Path(at) / name for at in ("/usr/bin", "/bin") if (Path(at) / name).exists()))
    return folder


def add(programs: Path, name: str, script: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{script}\n")
    (programs / name).chmod(0o755)


def test_a_node_without_its_environment_says_so_and_ends(made: Deployment, programs: Path) -> None:
    command = [str(made.kit(0) / "start.sh")]
    done = subprocess.run(command, env={"PATH": str(programs)}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 127
    assert done.stderr == (
        "Flower is not on the PATH: activate the environment that has refprotofl[flower], then start again.\n"
    )


@pytest.mark.parametrize("lives", [False, True], ids=["while-it-rests", "while-it-runs"])
def test_a_node_that_is_told_to_end_ends_at_once_and_after_what_it_started(
    made: Deployment, programs: Path, lives: bool
) -> None:
    kit = made.kit(0)
    add(programs, "flower-superexec", "")
    ends = "trap 'sleep 1; touch ended; exit 0' TERM; touch started; while :; do sleep 0.1; done"
    add(programs, "python3", ends if lives else "touch started; exit 1")
    node = subprocess.Popen(
        [str(kit / "start.sh")], env={"PATH": str(programs), "NODE_RETRY": "60"}, start_new_session=True
    )
    try:
        wait_for((kit / "started").exists, 20, lambda: "it was not started")
        time.sleep(0.5)
        os.kill(node.pid, signal.SIGTERM)
        assert node.wait(timeout=60) == 0
        assert (kit / "ended").exists() is lives
    finally:
        if node.poll() is None:
            os.killpg(node.pid, signal.SIGKILL)


def test_a_deployment_does_not_lie_in_an_app_that_flower_would_pack_it_into(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.flwr.app]\npublisher = "me"\n')
    with pytest.raises(InputError, match="use a folder outside"):
        write_deployment(Deployment(tmp_path / "deep" / "site", "127.0.0.1", 8443, 1, True))
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize(("host", "address"), [("::1", "[::1]:8443"), ("server.example", "server.example:8443")])
def test_a_node_is_told_host_and_port(tmp_path: Path, host: str, address: str) -> None:
    deployment = Deployment(tmp_path / "site", host, 8443, 1, False)
    write_deployment(deployment)
    assert f"--superlink {address} --port" in (deployment.kit(0) / "start.sh").read_text()


def test_a_host_with_a_port_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--host server:9000: it has a colon"):
        write_deployment(Deployment(tmp_path / "site", "server:9000", 8443, 1, True))
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("insecure", [True, False])
def test_a_node_says_at_every_start_that_it_is_insecure_if_it_is(
    tmp_path: Path, programs: Path, insecure: bool
) -> None:
    deployment = Deployment(tmp_path / "site", "127.0.0.1", 8443, 1, insecure)
    write_deployment(deployment)
    (deployment.kit(0) / "node.key").touch()
    add(programs, "flower-superexec", "")
    add(programs, "python3", "kill -TERM $PPID")
    done = subprocess.run(
        [str(deployment.kit(0) / "start.sh")],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr.count(f"warning: {INSECURE}\n") == insecure


def test_the_commands_that_are_printed_ask_nobody_but_the_server(tmp_path: Path) -> None:
    """They are those of docs/deploy.md, with all that keeps Flower quiet."""
    folder = tmp_path / "my site"
    done = subprocess.run(
        [str(BIN / "refprotofl"), "deploy", "init", str(folder), "--nodes", "1", "--host", "127.0.0.1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    printed = shlex.split(next(line for line in done.stdout.splitlines() if line.startswith("  export ")))
    assert printed == ["export", *(f"{name}={value}" for name, value in QUIET.items()), f"FLWR_HOME={folder}/flower"]
    documented = [line for line in (ROOT / "docs/deploy.md").read_text().splitlines() if line.startswith("export ")]
    assert {f"{name}={value}" for name, value in QUIET.items()} <= {
        word for line in documented for word in line.split()
    }
