"""A deployment as a user makes it, on loopback: TLS, keys made by the nodes, three SuperNodes with their own data."""

import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.flower.conftest import CLIENTS
from tests.flower.deploying import Configs
from tests.flower.loopback import BIN, ROOT, free_port

from refprotofl.deploying.kits import QUIET, Deployment, read_deployment
from refprotofl.deploying.server import ask_flower, environment
from refprotofl.records.verify import first_difference

PATIENCE = 400.0  # seconds; on two busy cores every message takes its time


class Site:
    """What a user would type; every process is ended by its id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[int, subprocess.Popen[bytes]] = {}
        self.env = {**os.environ, **QUIET, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "NODE_RETRY": "1"}

    @property
    def made(self) -> Deployment:
        return read_deployment(self.folder)

    def refprotofl(self, *arguments: str, code: int = 0) -> str:
        command = [str(BIN / "refprotofl"), *arguments]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def flwr(self, *arguments: str) -> str:
        command = [str(BIN / "flwr"), *arguments]
        done = subprocess.run(
            command, env=environment(self.made), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_node(self, number: int, data: Path) -> None:
        kit = self.made.kit(number)
        told = (kit / "node.toml").read_text().replace('data-path = "data"', f"data-path = {json.dumps(str(data))}")
        (kit / "node.toml").write_text(told)
        with (kit / "log").open("ab") as log:
            self.started[number] = subprocess.Popen(
                [str(kit / "start.sh")],
                env={**self.env, "NODE_PORT": str(free_port())},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        public = kit / "node.key.pub"
        wait_for(public.exists, 60, lambda: (kit / "log").read_text())
        self.flwr("supernode", "register", str(public), "refprotofl", "--name", f"node-{number}")

    def submit(self, config: dict[str, Any]) -> None:
        told = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        self.flwr("run", str(ROOT), "refprotofl", "--run-config", told)

    def last_run(self) -> dict[str, Any]:
        found: dict[str, Any] = ask_flower(self.made, "list")["runs"][0]
        return found

    def close(self) -> None:
        for process in self.started.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)
        with suppress(AssertionError):
            self.refprotofl("deploy", "stop", str(self.folder))


def wait_for(ready: Any, seconds: float, tell: Any) -> None:
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError(tell())
        time.sleep(0.5)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "site")
    port = str(free_port())
    site.refprotofl("deploy", "init", str(site.folder), "--nodes", str(CLIENTS), "--host", "127.0.0.1", "--port", port)
    yield site
    site.close()


def test_three_nodes_over_tls_give_the_digests_of_the_run_in_one_process(
    site: Site, settings: Configs, apart: Path, undisturbed: Path, tmp_path: Path
) -> None:
    assert stat.S_IMODE((site.made.server / "ca.key").stat().st_mode) == 0o600
    site.refprotofl("deploy", "start", str(site.folder), "--bind", "127.0.0.1")
    for number in range(CLIENTS):
        site.start_node(number, apart / f"client-{number}.npz")
        assert stat.S_IMODE((site.made.kit(number) / "node.key").stat().st_mode) == 0o600
    out = tmp_path / "there"
    site.submit(settings() | {"out": str(out)})

    wait_for((out / "summary.json").exists, PATIENCE, lambda: (site.made.server / "superlink.log").read_text()[-5000:])
    assert first_difference(undisturbed, out) is None
    assert "agree in every message and state" in site.refprotofl("verify", str(undisturbed), str(out))
    told = site.refprotofl("deploy", "doctor", str(site.made.kit(0)), "--experiment", str(out / "experiment.json"))
    assert "This node can take part." in told
    site.submit(settings() | {"out": "relative"})
    wait_for(lambda: site.last_run()["status"] == "finished:failed", 60, lambda: str(site.last_run()))
    assert "give the whole path" in site.refprotofl("deploy", "status", str(site.folder), code=4)
