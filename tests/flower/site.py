"""A deployment as a user makes it, on loopback: what they would type, and every process ended by its id."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.deployments import CLIENTS, run_config
from tests.flower.breaking import Link
from tests.flower.loopback import BIN, ROOT, free_port

from refprotofl.deploy.kits import PUBLIC_KEY
from refprotofl.deploy.operator import RunStatus
from refprotofl.deploy.server_process import QUIET
from refprotofl.deploy.site import Site as Made
from refprotofl.deploy.site import read_site
from refprotofl.engines.flower.control import FlowerOperator

PATIENCE = 600.0  # seconds; on busy cores every message takes its time


class Site:
    """Commands as a user types them; every process is ended by its id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[int, subprocess.Popen[bytes]] = {}
        self.link: Link
        self.run = 0  # the last one that was submitted
        self.env = {**os.environ, **QUIET, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "NODE_RETRY": "2"}

    @property
    def made(self) -> Made:
        return read_site(self.folder)

    def refprotofl(self, *arguments: str, code: int = 0) -> str:
        command = [str(BIN / "refprotofl"), *arguments]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def begin(self) -> None:
        ports = ["--port", str(free_port()), "--operator-port", str(free_port())]
        self.refprotofl("deploy", "init", str(self.folder), "--nodes", str(CLIENTS), "--host", "127.0.0.1", *ports)
        self.refprotofl("deploy", "start", str(self.folder))

    def join(self, number: int, data: Path) -> None:
        """Start a node, and admit the key that it makes."""
        kit = self.made.kit(number)
        found = (kit / "node.toml").read_text().replace('data-path = "data"', f"data-path = {json.dumps(str(data))}")
        (kit / "node.toml").write_text(found)
        self.start_node(number)
        wait_for((kit / PUBLIC_KEY).exists, PATIENCE, lambda: (kit / "log").read_text())
        self.admit(number)

    def admit(self, number: int) -> None:
        key = self.made.kit(number) / PUBLIC_KEY
        self.refprotofl("deploy", "admit", str(self.folder), f"node-{number}", str(key))

    def start_node(self, number: int) -> None:
        self.started[number] = self.start(self.made.kit(number), [str(self.made.kit(number) / "start.sh")])

    def start_hostile(self, number: int) -> None:
        """Start a node with this kit and key that sends invalid answers."""
        kit = self.made.kit(number)
        self.started[number] = self.start(kit, [sys.executable, "-m", "tests.flower.hostile_node", str(kit)])

    def start(self, kit: Path, command: list[str]) -> "subprocess.Popen[bytes]":
        with (kit / "log").open("ab") as log:
            return subprocess.Popen(command, env=self.env, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def kill_node(self, number: int) -> None:
        """Kill it with all its child processes, like a power cut."""
        process = self.started.pop(number)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)

    def node_process(self, number: int) -> int:
        """Return the id of the process that computes, which start.sh started."""
        shell = self.started[number].pid
        (child,) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        return int(child)

    def submit(self, config: dict[str, Any]) -> int:
        """Submit a run as `deploy run --detach` does; return its id."""
        given, words = run_config(config), list[str]()
        for name in ("preset", "out"):
            words += [f"--{name}", given[name]] if name in given else []
        for name, value in config.items():
            words += ["--set", f"{name}={value}"] if name not in ("preset", "out") and value != "" else []
        found = self.refprotofl("deploy", "run", str(self.folder), *words, "--detach")
        self.run = int(found.partition("Submitted run ")[2].partition(".")[0])
        return self.run

    def last_run(self) -> RunStatus:
        return FlowerOperator(self.made).run(self.run)

    def is_online(self, name: str) -> bool:
        return any(one.name == name and one.status == "online" for one in FlowerOperator(self.made).nodes())

    def log(self) -> str:
        """Return the ends of all logs, for a wait that timed out."""
        made = self.made
        paths = [made.log, made.runs / f"{self.run}.log", *(made.kit(number) / "log" for number in range(CLIENTS))]
        tails = [f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in paths if path.exists()]
        return "\n\n".join(tails)

    def close(self) -> None:
        for number in list(self.started):
            self.kill_node(number)
        with suppress(AssertionError):
            self.refprotofl("deploy", "stop", str(self.folder))


def wait_for(ready: Callable[[], bool], seconds: float, describe: Callable[[], str]) -> None:
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            raise TimeoutError(describe())
        time.sleep(0.3)
