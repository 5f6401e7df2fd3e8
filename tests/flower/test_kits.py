"""What `deploy init` writes for a node, and where."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.flower.site import wait_for

from refprotofl.deploying.kits import Deployment, write_deployment
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
    done = subprocess.run(command, env={"PATH": str(programs)}, capture_output=True, text=True, timeout=20, check=False)
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
        assert node.wait(timeout=10) == 0
        assert (kit / "ended").exists() is lives
    finally:
        if node.poll() is None:
            os.killpg(node.pid, signal.SIGKILL)


def test_a_deployment_does_not_lie_in_an_app_that_flower_would_pack_it_into(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.flwr.app]\npublisher = "me"\n')
    with pytest.raises(InputError, match="use a folder outside"):
        write_deployment(Deployment(tmp_path / "deep" / "site", "127.0.0.1", 8443, 1, True))
    assert not (tmp_path / "deep").exists()
