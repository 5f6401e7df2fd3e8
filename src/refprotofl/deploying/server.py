"""The server's process: started, looked at and stopped."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from refprotofl.deploying.kits import CONNECTION, QUIET, Deployment
from refprotofl.errors import InputError, MachineError
from refprotofl.records.files import write_whole

STARTING = 60.0  # seconds that the SuperLink has to come up
STOPPING = 20.0  # seconds that it has to end


def find_program(name: str) -> str:
    """Of the environment that this runs in, else on the PATH."""
    here = Path(sys.executable).with_name(name)
    found = str(here) if here.exists() else shutil.which(name)
    if found is None:
        raise InputError(f"{name} is not installed: pip install 'refprotofl[flower]'.")
    return found


def environment(made: Deployment) -> dict[str, str]:
    return {**os.environ, **QUIET, "FLWR_HOME": str(made.home.absolute())}


def start(made: Deployment, bind: str) -> int:
    """The process id of a SuperLink that answers; it goes on when this process ends."""
    running = process_of(made)
    if running is not None:
        raise InputError(f"The SuperLink of {made.folder} runs already, as process {running}.")
    if _answers(made.port):
        raise InputError(f"Something else listens on port {made.port}: stop it, or use another --port in deploy init.")
    trust = ["--insecure"] if made.insecure else _trust(made)
    place = ["--host", bind, "--port", str(made.port), "--database", str((made.server / "state.db").absolute())]
    command = [find_program("flower-superlink"), *trust, *place, "--disable-runtime-dependency-installation"]
    with (made.server / "superlink.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=environment(made),
            cwd=made.server,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    write_whole(made.server / "superlink.pid", f"{process.pid}\n".encode())
    until = time.monotonic() + STARTING
    while time.monotonic() < until and process.poll() is None:
        if _answers(made.port):
            return process.pid
        time.sleep(0.2)
    tail = (made.server / "superlink.log").read_text(errors="replace").strip().splitlines()[-3:]
    raise MachineError(f"The SuperLink did not start: {' '.join(tail)}")


def stop(made: Deployment) -> bool:
    """Whether there was one to stop. Nodes wait for it to come back; a run goes on with the same out."""
    process = process_of(made)
    if process is None:
        return False
    os.killpg(process, signal.SIGTERM)
    until = time.monotonic() + STOPPING
    while process_of(made) is not None:
        if time.monotonic() > until:
            os.killpg(process, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(process, os.WNOHANG)
        time.sleep(0.1)
    (made.server / "superlink.pid").unlink(missing_ok=True)
    return True


def process_of(made: Deployment) -> int | None:
    """The SuperLink's process, if it lives and is the one that was started here."""
    try:
        process = int((made.server / "superlink.pid").read_text())
        os.kill(process, 0)
        command = Path(f"/proc/{process}/cmdline")
        if command.parent.exists() and str((made.server / "state.db").absolute()) not in command.read_text():
            return None  # another process has its number by now
    except (OSError, ValueError):
        return None
    return process


def ask_flower(made: Deployment, *arguments: str) -> dict[str, Any]:
    """What a command of Flower's answers as JSON."""
    command = [find_program("flwr"), *arguments, CONNECTION, "--format", "json"]
    done = subprocess.run(
        command, env=environment(made), cwd=made.folder, capture_output=True, text=True, timeout=120, check=False
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        raise MachineError(f"flwr {' '.join(arguments)} failed: {(done.stderr or done.stdout).strip()}") from None
    return found


def names_of_nodes(made: Deployment) -> dict[str, str]:
    """By node id, as they were registered: Flower keeps them in its database, and its commands do not show them."""
    database = f"{(made.server / 'state.db').absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(database, uri=True)) as state:
            rows = state.execute("SELECT node_id, name FROM node WHERE name IS NOT NULL").fetchall()
    except sqlite3.Error:
        return {}  # then nodes are told by their ids
    return {str(int(node) % 2**64): str(name) for node, name in rows}  # ids are kept with a sign


def _trust(made: Deployment) -> list[str]:
    files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key"}
    named = [part for option, name in files.items() for part in (option, str((made.server / name).absolute()))]
    return [*named, "--enable-supernode-auth"]


def _answers(port: int) -> bool:
    with closing(socket.socket()) as end:
        end.settimeout(1)
        return end.connect_ex(("127.0.0.1", port)) == 0
