"""A deployment over MQTT as a user makes it, on loopback; every process is ended by its id."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tests.deployments import CLIENTS, run_config

from refprotofl.deploy.kits import REQUEST
from refprotofl.deploy.operator import RunStatus
from refprotofl.deploy.site import Site as Made
from refprotofl.deploy.site import read_site
from refprotofl.engines.mqtt.control import MqttOperator

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PATIENCE = 300.0  # seconds


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Site:
    """Commands as a user types them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: dict[int, subprocess.Popen[bytes]] = {}
        self.link: Any = None  # between a node and the broker, where a test has put one
        self.run = 0  # the last one that was submitted
        self.env = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "NODE_RETRY": "1"}

    @property
    def made(self) -> Made:
        return read_site(self.folder)

    def refprotofl(self, *arguments: str, code: int = 0) -> str:
        command = [str(BIN / "refprotofl"), *arguments]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def begin(self, nodes: int = CLIENTS) -> None:
        ports = ["--port", str(free_port()), "--operator-port", str(free_port())]
        words = ["--nodes", str(nodes), "--host", "127.0.0.1", "--transport", "mqtt", *ports]
        self.refprotofl("deploy", "init", str(self.folder), *words)
        self.refprotofl("deploy", "start", str(self.folder))

    def join(self, number: int, data: Path) -> None:
        """Start a node, and admit the key that it makes."""
        kit = self.made.kit(number)
        found = (kit / "node.toml").read_text().replace('data-path = "data"', f"data-path = {json.dumps(str(data))}")
        (kit / "node.toml").write_text(found)
        self.start_node(number)
        wait_for((kit / REQUEST).exists, PATIENCE, lambda: (kit / "log").read_text())
        self.refprotofl("deploy", "admit", str(self.folder), f"node-{number}", str(kit / REQUEST))

    def start_node(self, number: int, more: dict[str, str] | None = None) -> None:
        self.started[number] = self.start_kit(self.made.kit(number), more)

    def start_kit(self, kit: Path, more: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start the node of a kit with `more` in its environment."""
        with (kit / "log").open("ab") as log:
            command, env = [str(kit / "start.sh")], {**self.env, **(more or {})}
            return subprocess.Popen(command, env=env, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def node_process(self, number: int) -> int:
        """Return the process of a node, which start.sh has started."""
        script = self.started[number].pid
        children = Path(f"/proc/{script}/task/{script}/children").read_text().split()
        return next(int(one) for one in children if b"refprotofl" in Path(f"/proc/{one}/cmdline").read_bytes())

    def kill_node(self, number: int) -> None:
        """Kill it with all its child processes, like a power cut."""
        process = self.started.pop(number)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)

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
        return MqttOperator(self.made).run(self.run)

    def is_online(self, name: str) -> bool:
        return any(one.name == name and one.status == "online" for one in MqttOperator(self.made).nodes())

    def brokers(self) -> list[int]:
        """Return the processes of the site's broker."""
        server = (self.made.server / "server.pid").read_text().strip()
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        return [int(one) for one in children if b"mosquitto.conf" in Path(f"/proc/{one}/cmdline").read_bytes()]

    def broker_folder(self, broker: int) -> str:
        """Return the folder of a broker's configuration."""
        return os.path.dirname(Path(f"/proc/{broker}/cmdline").read_bytes().split(b"\0")[2].decode())

    def run_processes(self) -> list[int]:
        """Return the processes of the run that was submitted last."""
        naming = f"refprotofl.engines.mqtt.run_process\0{self.folder}\0{self.run}\0".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                found += [int(entry.parent.name)] if naming in entry.read_bytes() else []
        return found

    def is_gone(self, process: int) -> bool:
        with suppress(OSError):
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return True

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
        time.sleep(0.1)
