"""A deployment as a user makes it, on loopback: what they would type, and every process ended by its id."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.flower.breaking import Link, processes, signal_all
from tests.flower.conftest import CLIENTS
from tests.flower.loopback import BIN, ROOT, free_port

from refprotofl.deploy.kits import QUIET, Deployment, read_deployment
from refprotofl.deploy.server import ask_flower, environment

PATIENCE = 400.0  # seconds; on two busy cores every message takes its time


class Site:
    """What a user would type; every process is ended by its id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[int, subprocess.Popen[bytes]] = {}
        self.link: Link
        self.env = {**os.environ, **QUIET, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "NODE_RETRY": "5"}

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

    def begin(self) -> None:
        port = str(free_port())
        self.refprotofl(
            "deploy", "init", str(self.folder), "--nodes", str(CLIENTS), "--host", "127.0.0.1", "--port", port
        )
        self.refprotofl("deploy", "start", str(self.folder), "--bind", "127.0.0.1")

    def join(self, number: int, data: Path) -> None:
        """The node is started, and its key registered."""
        kit = self.made.kit(number)
        told = (kit / "node.toml").read_text().replace('data-path = "data"', f"data-path = {json.dumps(str(data))}")
        (kit / "node.toml").write_text(told)
        self.start_node(number)
        public = kit / "node.key.pub"
        wait_for(public.exists, 60, lambda: (kit / "log").read_text())
        self.flwr("supernode", "register", str(public), "refprotofl", "--name", f"node-{number}")

    def start_node(self, number: int) -> None:
        kit = self.made.kit(number)
        with (kit / "log").open("ab") as log:
            self.started[number] = subprocess.Popen(
                [str(kit / "start.sh")],
                env={**self.env, "NODE_PORT": str(free_port())},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill_node(self, number: int) -> None:
        """With all that it has started, as a power cut would; its worker is in a group of its own."""
        process = self.started.pop(number)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        signal_all(processes(str(self.made.kit(number) / "store" / "worker.sock")), signal.SIGKILL)

    def submit(self, config: dict[str, Any]) -> None:
        told = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        self.flwr("run", str(ROOT), "refprotofl", "--run-config", told)

    def last_run(self) -> dict[str, Any]:
        found: dict[str, Any] = ask_flower(self.made, "list")["runs"][0]
        return found

    def log(self) -> str:
        return (self.made.server / "superlink.log").read_text(errors="replace")[-5000:]

    def close(self) -> None:
        for number in list(self.started):
            self.kill_node(number)
        with suppress(AssertionError):
            self.refprotofl("deploy", "stop", str(self.folder))


def wait_for(ready: Callable[[], bool], seconds: float, tell: Callable[[], str]) -> None:
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError(tell())
        time.sleep(0.5)
