"""The server of a site: Flower's SuperLink behind two doors, and the processes of its runs.

python -m refprotofl.engines.flower.superlink SITE ADDRESS
"""

import asyncio
import gc
import hmac
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from refprotofl.deploy.log import log
from refprotofl.deploy.site import Site, read_site
from refprotofl.engines.flower import internals
from refprotofl.engines.flower.doors import (
    NODE_ROUTES,
    OPERATOR_ROUTES,
    REGISTRATION,
    Door,
    Listener,
    allow_connections,
    bind,
)
from refprotofl.records import sha256

LOOK = 0.3  # seconds between two looks for runs that wait
ENDING = 20.0  # seconds that a run's process has to end
RENEWED = 2.0  # seconds between two looks for a new certificate
SELDOM = (20_000, 20, 50)  # new objects before Python looks for garbage: a request leaves many small ones behind
OPERATOR_CONNECTIONS = 256  # of commands and of the processes of runs
NODE_REQUESTS = 24  # requests and connections of one node at a time; a message's parts are sent side by side
TOKEN = "REFPROTOFL_RUN_TOKEN"  # in the environment of a run's process: a command line can be read by everyone


def main() -> None:
    site, address = read_site(Path(sys.argv[1])), sys.argv[2]
    try:
        asyncio.run(serve(site, address))
    except OSError as problem:
        sys.exit(f"Cannot listen on {address}: {problem}")


async def serve(site: Site, address: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    keys = site.keys
    devices, operator = bind(address, keys.port), bind("127.0.0.1", keys.operator_port)
    app = internals.create_app(site)
    launcher = Launcher(site, app)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    tls = _tls(site)
    async with app.router.lifespan_context(app):
        launcher.start()
        _stay_on_one_core()
        most = allow_connections(keys.max_connections + OPERATOR_CONNECTIONS) - OPERATOR_CONNECTIONS
        per_address = min(most, keys.max_connections_per_address)
        serving = [
            asyncio.create_task(Listener(device_door(site, app), tls, most, per_address).serve(devices)),
            asyncio.create_task(
                Listener(operator_door(site, app), tls, OPERATOR_CONNECTIONS, OPERATOR_CONNECTIONS).serve(operator)
            ),
        ]
        ending = asyncio.create_task(stopped.wait())
        renewing = asyncio.create_task(_use_newest(site, tls))
        await asyncio.wait([ending, *serving], return_when=asyncio.FIRST_COMPLETED)
        for task in (ending, renewing, *serving):
            task.cancel()
        launcher.stop()


def device_door(site: Site, app: Any) -> Door:
    """Return the door for nodes: it opens to signatures of registered keys."""

    async def check(headers: dict[str, str]) -> str:
        sender: str = await run_sync(_node, app, headers)
        return sender

    return Door(app, NODE_ROUTES, check, NODE_REQUESTS, REGISTRATION if site.keys.insecure else {})


def _node(app: Any, headers: dict[str, str]) -> str:
    """Return the registered key that signed a request; "" if none did."""
    key = internals.verified_key(headers)
    return sha256(key) if key is not None and internals.is_registered(app, key) else ""


def operator_door(site: Site, app: Any) -> Door:
    """Return the door for the operator's commands and the processes of runs: it opens to the site's secret."""
    secret = site.secret().encode()

    async def check(headers: dict[str, str]) -> str:
        known = hmac.compare_digest(headers.get(internals.SECRET_HEADER, "").encode(), secret)
        return "operator" if known else ""

    return Door(app, OPERATOR_ROUTES, check, OPERATOR_CONNECTIONS)


def _tls(site: Site) -> ssl.SSLContext | None:
    if site.keys.insecure:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.server / "server.crt", site.server / "server.key")
    return context


async def _use_newest(site: Site, tls: ssl.SSLContext | None) -> None:
    """Use a certificate that was renewed for every connection from then on."""
    files = site.server / "server.crt", site.server / "server.key"
    used = files[0].stat().st_mtime_ns if tls is not None else 0
    while tls is not None:
        await asyncio.sleep(RENEWED)
        with suppress(OSError):  # it is looked at again
            if files[0].stat().st_mtime_ns != used:
                tls.load_cert_chain(*files)
                used = files[0].stat().st_mtime_ns
                log("The server's new certificate is used from now on.")


def _stay_on_one_core() -> None:
    """Keep this thread, and those that it starts from now on, on one core.

    Python's threads take turns, and to hand the turn to another core costs more than many a turn does. Processes of
    runs are started by a thread that has all cores.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


class Launcher:
    """Starts a process for each run, and notices at once when it ends."""

    def __init__(self, site: Site, app: Any) -> None:
        self._site, self._app = site, app
        self._started: dict[int, subprocess.Popen[bytes]] = {}  # by task
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        for task in internals.unfinished(self._app):
            internals.fail_task(self._app, task, internals.RESTARTED)
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(ENDING)
        for process in self._started.values():
            _stop(process)

    def _run(self) -> None:
        while not self._end.wait(LOOK):
            try:
                self._look()
            except Exception as problem:  # a database that is busy for once must not end all runs to come
                log(f"The server could not look for runs: {type(problem).__name__}: {problem}")

    def _look(self) -> None:
        found = internals.acquire_run(self._app)
        if found is not None:
            run, task, token = found
            self._started[task] = self._launch(run, token)
        if not self._started:
            return
        alive = internals.unfinished(self._app, list(self._started))
        for task, process in list(self._started.items()):
            code = process.poll()
            if code is not None and task in alive:
                internals.fail_task(self._app, task, f"Its process ended (exit code {code}): killed, or out of memory.")
            if code is None and task not in alive:
                _stop(process)  # the operator stopped the run, or it has just ended by itself
            if process.poll() is not None:
                del self._started[task]

    def _launch(self, run: int, token: str) -> "subprocess.Popen[bytes]":
        command = [
            sys.executable,
            "-m",
            "refprotofl.engines.flower.run_process",
            str(self._site.folder.absolute()),
            str(run),
        ]
        with (self._site.runs / f"{run}.log").open("ab") as log:
            return subprocess.Popen(
                command, env={**os.environ, TOKEN: token}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Let a process that is about to end by itself do so; end it otherwise."""
    steps: list[tuple[Callable[[], object], float]] = [
        (process.poll, 3.0),
        (process.terminate, ENDING),
        (process.kill, ENDING),
    ]
    for ask, seconds in steps:
        ask()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
        return


if __name__ == "__main__":
    main()
