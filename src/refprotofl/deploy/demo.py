"""A whole deployment on this machine: a site, its server, nodes over TLS, and a run compared with one in-process."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from refprotofl.core import MachineError, RunError
from refprotofl.data import client_file, export_federation, load_federated
from refprotofl.deploy.kits import write_kits
from refprotofl.deploy.operator import admit, follow
from refprotofl.deploy.server_process import QUIET, start, stop
from refprotofl.deploy.site import Site, SiteKeys, create_site
from refprotofl.deploy.transports import TransportName
from refprotofl.experiment import load_experiment
from refprotofl.federation import run
from refprotofl.records import first_difference

ROUNDS = 3
PATIENCE = 120.0  # seconds that a node has to make its key

Say = Callable[[str], None]


def demonstrate(nodes: int, transport: TransportName, say: Say) -> str:
    """Return the state digest that both runs ended with; RunError if they differ."""
    with tempfile.TemporaryDirectory(prefix="refprotofl-demo-") as name, ExitStack() as cleanup:
        folder = Path(name)
        settings = [f"clients={nodes}", f"rounds={ROUNDS}", "evaluate.every=1"]
        say(f"1. Split scikit-learn's digits among {nodes} nodes, each with its own file.")
        export_federation(load_federated(load_experiment(preset="quick", settings=settings)), folder / "shared")
        settings += [f"{one}.dataset={folder / 'shared' / one}.npz" for one in ("public", "test")]
        export_federation(load_federated(load_experiment(preset="quick", settings=settings)), folder / "data")

        say("2. Make a site: certificates, an operator's secret, a kit for each node.")
        port, operator_port = _free_ports()
        keys = SiteKeys(host="127.0.0.1", port=port, operator_port=operator_port, nodes=nodes, transport=transport)
        site = create_site(folder / "site", keys)
        write_kits(site)

        say("3. Start the server.")
        process, address = start(site)
        cleanup.callback(stop, site)
        say(f"   Process {process}, devices on {address}:{port}.")

        say("4. Start the nodes; each makes its key, which the operator admits.")
        operator = site.transport.connect(site)
        for number in range(nodes):
            cleanup.enter_context(_node(site, number, folder / "data" / client_file(number)))
        for number in range(nodes):
            _await_key(site, number)
            client, mark = admit(site, operator, f"node-{number}", site.kit(number) / site.transport.key_file)
            say(f"   Admitted node-{number} as client {client}, key {mark[:16]}…")

        say(f"5. Run {ROUNDS} rounds over TLS.")
        begun = time.monotonic()
        submitted = operator.start({"preset": "quick", "set": " ".join(settings), "out": str(folder / "deployed")})
        ended = follow(site, operator, submitted, lambda line: say(f"   {line}"))
        if ended.status != "finished:completed":
            raise RunError(f"The run ended as {ended.status}: {ended.reason}{_logs(site)}")
        say(f"   {(time.monotonic() - begun) / ROUNDS:.1f} s per round, with start-up.")

        say("6. The same run in one process.")
        here = run(load_experiment(preset="quick", settings=settings), out=folder / "here")
        difference = first_difference(here.folder, folder / "deployed")
        if difference is not None:
            raise RunError(f"The two runs differ: {difference}")
        return str(here.summary["state_digest"])


def _free_ports() -> tuple[int, int]:
    """Return two free ports."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@contextmanager
def _node(site: Site, number: int, data: Path) -> Iterator[None]:
    """Run a node's process, as start.sh does; it is stopped at the end."""
    kit = site.kit(number)
    config = (kit / "node.toml").read_text(encoding="utf-8")
    (kit / "node.toml").write_text(config.replace('"data" ', f"{json.dumps(str(data))} ", 1), encoding="utf-8")
    with (kit / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "refprotofl", "node", str(kit)],
            env={**os.environ, **QUIET},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_key(site: Site, number: int) -> None:
    until = time.monotonic() + PATIENCE
    while not (site.kit(number) / site.transport.key_file).exists():
        if time.monotonic() > until:
            raise MachineError(f"node-{number} has made no key within {PATIENCE:g} s.{_logs(site)}")
        time.sleep(0.1)


def _logs(site: Site) -> str:
    """Return the last lines of all logs, which are removed with the demo's folder."""
    paths = [site.log, *sorted((site.folder / "kits").glob("*/log"))]
    tails = [(path, path.read_text(errors="replace").splitlines()[-5:]) for path in paths if path.exists()]
    return "".join(f"\n{path.name} of {path.parent.name}: {' | '.join(lines)}" for path, lines in tails if lines)
