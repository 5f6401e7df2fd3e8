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
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from refprotofl.basics.hosts import LOOPBACK, read_host, with_port
from refprotofl.deploying.kits import CONNECTION, Deployment, connect_to
from refprotofl.errors import InputError, MachineError
from refprotofl.records.files import write_whole

STARTING = 60.0  # seconds that the SuperLink has to come up
STOPPING = 20.0  # seconds that it has to end
ANSWERING = 120.0  # seconds that a command of Flower's has to answer
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # to listen on, and where to find who does


def find_program(name: str) -> str:
    """Of the environment that this runs in, else on the PATH."""
    here = Path(sys.executable).with_name(name)
    found = str(here) if here.exists() else shutil.which(name)
    if found is None:
        raise InputError(f"{name} is not installed: pip install 'refprotofl[flower]'.")
    return found


def superlink() -> list[str]:
    """Flower's, as we have it run; without Flower, what to install is said."""
    find_program("flower-superlink")
    return [sys.executable, "-m", "refprotofl.engines.flower.superlink"]


def environment(made: Deployment) -> dict[str, str]:
    return {**os.environ, **made.variables}


def start(made: Deployment, bind: str) -> int:
    """The process id of a SuperLink that answers; it goes on when this process ends. One that does not is ended."""
    bind = read_host(bind, "--bind")
    near = EVERYWHERE.get(bind, bind)
    running = process_of(made)
    if running is not None:
        raise InputError(f"The SuperLink of {made.folder} runs already, as process {running}.")
    if _answers(near, made.port):
        raise InputError(f"Something else listens on port {made.port}: stop it, or use another --port in deploy init.")
    connect_to(made, near if made.insecure or near in LOOPBACK else made.host)  # which the certificate names
    process = _launch(made, bind)
    try:
        _await(made, process, near)
    except BaseException:  # Ctrl-C as well
        _end(process.pid, lambda: process.poll() is not None)
        _pid_file(made).unlink(missing_ok=True)
        raise
    return process.pid


def _launch(made: Deployment, bind: str) -> "subprocess.Popen[bytes]":
    trust = ["--insecure"] if made.insecure else _trust(made)
    place = ["--host", bind, "--port", str(made.port), "--database", str((made.server / "state.db").absolute())]
    command = [*superlink(), *trust, *place, "--disable-runtime-dependency-installation"]
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
    write_whole(_pid_file(made), f"{process.pid}\n".encode())
    return process


def _await(made: Deployment, process: "subprocess.Popen[bytes]", near: str) -> None:
    until = time.monotonic() + STARTING
    while time.monotonic() < until and process.poll() is None:
        if _answers(near, made.port):
            return
        time.sleep(0.2)
    why = "ended at once" if process.poll() is not None else f"does not answer on {with_port(near, made.port)}"
    tail = (made.server / "superlink.log").read_text(errors="replace").strip().splitlines()[-3:]
    raise MachineError(f"The SuperLink did not start, it {why}: {' '.join(tail)}")


def stop(made: Deployment) -> bool:
    """Whether there was one to stop. Nodes wait for it to come back; a run goes on with the same out."""
    process = process_of(made)
    if process is None:
        return False
    _end(process, lambda: process_of(made) is None)
    _pid_file(made).unlink(missing_ok=True)
    return True


def _end(process: int, gone: Callable[[], bool]) -> None:
    """With all that it has started."""
    until = time.monotonic() + STOPPING
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGTERM)
        while not gone():
            if time.monotonic() > until:
                os.killpg(process, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
            time.sleep(0.1)


def _pid_file(made: Deployment) -> Path:
    return made.server / "superlink.pid"


def process_of(made: Deployment) -> int | None:
    """The SuperLink's process, if it lives and is the one that was started here."""
    try:
        process = int(_pid_file(made).read_text())
        os.kill(process, 0)
        command = Path(f"/proc/{process}/cmdline")
        if command.parent.exists() and str((made.server / "state.db").absolute()) not in command.read_text():
            return None  # another process has its number by now
    except (OSError, ValueError):
        return None
    return process


def ask_flower(made: Deployment, *arguments: str) -> dict[str, Any]:
    """What a command of Flower's answers as JSON; MachineError if it does not, or says that it failed."""
    named = f"flwr {' '.join(arguments)}"
    try:
        done = subprocess.run(
            [find_program("flwr"), *arguments, CONNECTION, "--format", "json"],
            env=environment(made),
            cwd=made.folder,
            capture_output=True,
            text=True,
            timeout=ANSWERING,
            check=False,
        )
    except subprocess.TimeoutExpired:
        log = made.server / "superlink.log"
        raise MachineError(
            f"{named} has not answered in {ANSWERING:g} seconds; the SuperLink's log is {log}."
        ) from None
    try:
        found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError:
        raise MachineError(f"{named} failed: {(done.stderr or done.stdout).strip()}") from None
    if found.get("success") is not True:
        raise MachineError(f"{named} failed: {' '.join(str(found.get('error-message', done.stdout)).split())}")
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


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
