"""The ServerApp of Flower's simulation. Runs of a deployment have their own process (run_process.py)."""

import time

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from refprotofl.core import RefProtoFLError, RunError
from refprotofl.deploy.log import log
from refprotofl.deploy.run_config import read_run_config
from refprotofl.deploy.status import StatusCallback
from refprotofl.deploy.transport import Transport
from refprotofl.engines.flower.grid_transport import FlowerTransport
from refprotofl.engines.flower.simulation import simulate

FIRST_NODE = 600.0  # seconds to wait for the first node

app = ServerApp()


class RunFailed(Exception):
    """Reported to Flower in place of our own errors, whose trace would say nothing to a user."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment of the run config; what goes wrong is the reason that Flower keeps of a failed run."""
    try:
        settings, transport = read_run_config(context.run_config), FlowerTransport(grid)
        finished = simulate(transport, first_nodes(transport), settings, StatusCallback())
        log(f"The run is in {finished.folder}.")
    except RefProtoFLError as problem:
        log(f"Error: {problem}")
        raise RunFailed(str(problem)) from None


def first_nodes(transport: Transport) -> list[int]:
    until = time.monotonic() + FIRST_NODE
    while time.monotonic() < until:
        nodes = sorted(node.number for node in transport.nodes())
        if nodes:
            return nodes
        transport.rest()
    raise RunError(f"No node has come within {FIRST_NODE:g} seconds; start one, then run again with the same out.")
