"""The server's process: started, found and stopped."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

from refprotofl.core import LOOPBACK, InputError, MachineError, read_host, with_port
from refprotofl.deploy.certificates import validity_problem
from refprotofl.deploy.site import Site
from refprotofl.records import write_whole

STARTING = 120.0  # seconds that the server has to come up
ANSWERING = 5.0  # seconds that it has to answer a request
STOPPING = 30.0  # seconds that it has to end
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # an address to listen on, and where it is then found
QUIET = {  # turns off telemetry and update checks
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

_started: list["subprocess.Popen[bytes]"] = []  # servers outlive the process that started them


def environment(site: Site) -> dict[str, str]:
    return {**os.environ, **QUIET, "FLWR_HOME": str(site.home.absolute())}


def check_certificates(site: Site) -> None:
    """Raise InputError if a certificate of the site has expired or is not valid yet."""
    for name in () if site.keys.insecure else site.transport.certificates:
        problem = validity_problem(site.server / name)
        if problem:
            raise InputError(problem)


def address_for(site: Site, asked: str | None) -> str:
    """Return the address to listen on: as asked, else the one of this machine under which nodes reach it."""
    if asked is not None:
        address = read_host(asked, "--bind")
        if site.keys.insecure and address not in LOOPBACK:
            raise InputError(f"An insecure site listens on this machine only: --bind 127.0.0.1, not {address}.")
        return address
    try:
        address = str(socket.getaddrinfo(site.keys.host, site.keys.port, type=socket.SOCK_STREAM)[0][4][0])
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as trial:
            trial.bind((address, 0))
    except OSError:
        raise InputError(
            f"{site.keys.host} is not an address of this machine: name the one to listen on, such as --bind 0.0.0.0 "
            "for all of its addresses."
        ) from None
    return address


def start(site: Site, bind: str | None = None) -> tuple[int, str]:
    """Start the server, which stays when this process ends; return its process id and address once it answers."""
    with site.locked("server"):
        return _start(site, address_for(site, bind))


def _start(site: Site, address: str) -> tuple[int, str]:
    near = EVERYWHERE.get(address, address)
    running = process_of(site)
    if running is not None:
        raise InputError(f"The server of {site.folder} is running already, as process {running}.")
    check_certificates(site)
    _end_broker(site)
    for host, port, option in ((near, site.keys.port, "port"), ("127.0.0.1", site.keys.operator_port, "operator-port")):
        if not site.keys.broker and _answers(host, port):
            raise InputError(f"Something else listens on port {port}: stop it, or change {option} in site.toml.")
    process = _launch(site, address)
    try:
        _await(site, process, near)
    except BaseException:  # Ctrl-C as well
        _end(process.pid, lambda: process.poll() is not None)
        _pid_file(site).unlink(missing_ok=True)
        raise
    return process.pid, address


def _launch(site: Site, address: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", site.transport.server, str(site.folder.absolute()), address]
    with site.log.open("ab") as log:
        process = subprocess.Popen(
            command,
            env=environment(site),
            cwd=site.server,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _started.append(process)
    write_whole(_pid_file(site), f"{process.pid}\n".encode())
    return process


def _await(site: Site, process: "subprocess.Popen[bytes]", near: str) -> None:
    until = time.monotonic() + STARTING
    while time.monotonic() < until and process.poll() is None:
        if _is_ready(site, process.pid, near):
            return
        time.sleep(0.1)
    ended = process.poll() is not None
    why = "ended at once" if ended else f"does not answer on {with_port(near, site.keys.port)}"
    tail = site.log.read_text(errors="replace").strip().splitlines()[-3:]
    raise MachineError(f"The server did not start, it {why}: {' '.join(tail)}")


def stop(site: Site) -> bool:
    """Stop the server and the processes of its runs; return whether there was one. Nodes wait for it to come back."""
    process = process_of(site)
    if process is None:
        return False
    _end(process, lambda: process_of(site) is None)
    _pid_file(site).unlink(missing_ok=True)
    return True


def _end(process: int, gone: Callable[[], bool]) -> None:
    """End a server, and then what it has started and has not ended itself: they are one process group."""
    until = time.monotonic() + STOPPING
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)
        while not gone() and time.monotonic() < until:
            with suppress(ChildProcessError):
                os.waitpid(process, os.WNOHANG)
            time.sleep(0.1)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(process, 0)


def _end_broker(site: Site) -> None:
    """End the broker of a server that was killed."""
    try:
        process, command = json.loads(site.broker_process.read_text())
        if Path(f"/proc/{process}/cmdline").read_text().split("\0")[:-1] != command:
            return
        os.kill(process, signal.SIGTERM)
    except (OSError, ValueError, TypeError):
        return
    until = time.monotonic() + STOPPING
    while time.monotonic() < until and Path(f"/proc/{process}").exists():
        time.sleep(0.05)


def _pid_file(site: Site) -> Path:
    return site.server / "server.pid"


def process_of(site: Site) -> int | None:
    """Return the id of the server's process, if it is alive and of this site."""
    try:
        process = int(_pid_file(site).read_text())
        os.kill(process, 0)
        command = Path(f"/proc/{process}/cmdline")
        if command.parent.exists() and str(site.folder.absolute()) not in command.read_text().split("\0"):
            return None  # another process has its number by now
    except (OSError, ValueError):
        return None
    return process


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _is_ready(site: Site, process: int, near: str) -> bool:
    if site.transport.http:
        return all(_serves(site, *one) for one in ((near, site.keys.port), ("127.0.0.1", site.keys.operator_port)))
    try:
        ready = site.ready.read_text() == str(process)
    except OSError:
        return False
    return ready and (bool(site.keys.broker) or _answers(near, site.keys.port))


def _serves(site: Site, host: str, port: int) -> bool:
    """Return whether the site's server answers a request there: its ports are open before it is ready."""
    if site.authority is None:
        line = HTTPConnection(host, port, timeout=ANSWERING)
    else:
        context = ssl.create_default_context(cafile=str(site.authority))
        context.check_hostname = False  # it may listen on another address than the one under which nodes reach it
        line = HTTPSConnection(host, port, timeout=ANSWERING, context=context)
    try:
        with closing(line):
            line.request("HEAD", "/")
            line.getresponse()
    except (OSError, HTTPException):
        return False
    return True
