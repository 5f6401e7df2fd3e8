"""The ServerApp: it finds out what kind of nodes there are, and runs the experiment of the run config over them."""

import os
import time

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from refprotofl.basics.escapes import for_terminal
from refprotofl.engines.flower.courier import Courier, Sending
from refprotofl.engines.flower.parcels import Parcel
from refprotofl.engines.flower.settings import read_run_config
from refprotofl.engines.flower.simulated import simulate
from refprotofl.engines.flower.telling import RoundLines
from refprotofl.errors import RunError

HELLO = "hello"
FIRST_NODE = 600.0  # seconds to wait for the first node

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """A RefProtoFLError ends the run as failed, with its sentence in the run's details."""
    settings = read_run_config(context.run_config)
    courier, watcher = Courier(grid), RoundLines()
    nodes = first_nodes(grid, courier)
    finished = simulate(courier, nodes, settings, watcher)
    print(f"The run is in {finished.folder}.", flush=True)


def first_nodes(grid: Grid, courier: Courier) -> list[int]:
    until = time.monotonic() + FIRST_NODE
    while time.monotonic() < until:
        nodes = sorted(grid.get_node_ids())
        if nodes:
            return nodes
        courier.rest()
    raise RunError(f"No node has come within {FIRST_NODE:g} seconds; start one, then run again with the same out.")
