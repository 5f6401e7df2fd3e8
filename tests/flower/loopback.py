"""Flower's own SuperLink on loopback, for its simulation, and what it starts, ended by their process ids."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.deployments import run_config

from refprotofl.deploy.server_process import QUIET

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SOON = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05"}


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Loopback:
    """Flower on this machine, with a home and ports of its own, so that no other SuperLink is reached."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.home = folder / "flwr-home"
        self.home.mkdir(parents=True)
        self.env = {**os.environ, **QUIET, **SOON, "FLWR_HOME": str(self.home)}
        self.env["PATH"] = f"{BIN}{os.pathsep}{self.env['PATH']}"
        config = (
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        (self.home / "config.toml").write_text(config)
        self.command = [str(BIN / "flower-superlink"), "--simulation"]

    def start_superlink(self) -> None:
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        self.start("superlink", [*self.command, "--insecure", *address])
        self.wait_for_port(self.port)

    def start(self, name: str, command: list[str]) -> None:
        log = (self.folder / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            command, env=self.env, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
        )
        log.close()

    def wait_for_port(self, port: int, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with closing(socket.socket()) as one:
                one.settimeout(1)
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.1)
        raise TimeoutError(self.log("superlink"))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def flwr(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments, "--format", "json"],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        start = done.stdout.find("{")
        assert start >= 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout[start:])
        return found

    def submit(self, config: dict[str, Any], federation: str = "") -> str:
        found = " ".join(f"{key}={json.dumps(value)}" for key, value in run_config(config).items())
        more = ["--federation-config", federation] if federation else []
        return str(self.flwr("run", str(ROOT), "here", "--run-config", found, *more)["run-id"])

    def status(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self.flwr("list", "here")["runs"] if one["run-id"] == run)
        return found

    def wait(self, run: str, seconds: float = 240) -> dict[str, Any]:
        """The run when it is finished, one way or the other."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = self.status(run)
            if found["status"].startswith("finished"):
                return found
            time.sleep(3)  # every look starts a process
        raise TimeoutError(f"{found}\n{self.log('superlink')[-5000:]}")

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """The process and what it started."""
        process = self.processes.pop(name)
        os.killpg(process.pid, how)
        process.wait(timeout=30)

    def close(self) -> None:
        for name in reversed(list(self.processes)):
            self.kill(name)
