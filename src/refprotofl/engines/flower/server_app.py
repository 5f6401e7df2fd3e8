"""The ServerApp: it finds out what kind of nodes there are, and runs the experiment of the run config over them."""

import time

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from refprotofl.engines.flower.courier import Courier, Sending
from refprotofl.engines.flower.deployed import deploy
from refprotofl.engines.flower.gathering import HELLO
from refprotofl.engines.flower.parcels import Parcel
from refprotofl.engines.flower.settings import read_run_config, runs_folder
from refprotofl.engines.flower.simulated import simulate
from refprotofl.engines.flower.telling import RoundLines, say
from refprotofl.errors import RefProtoFLError, RunError
from refprotofl.simulation.run import default_folder

FIRST_NODE = 600.0  # seconds to wait for the first node
FIRST_ANSWER = 120.0  # seconds that it has to answer; a small device starts a process for it

app = ServerApp()


class RunFailed(Exception):
    """Told to Flower in place of our own, whose trace would say nothing to a user."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """What goes wrong is the reason that Flower keeps of a failed run."""
    try:
        run(grid, context)
    except RefProtoFLError as problem:
        say(f"Error: {problem}")
        raise RunFailed(str(problem)) from None


def run(grid: Grid, context: Context) -> None:
    settings = read_run_config(context.run_config)
    courier, watcher = Courier(grid), RoundLines()
    nodes = first_nodes(courier)
    out = settings.out or runs_folder() / default_folder(settings.experiment).name
    if are_simulated(courier, nodes):
        finished = simulate(courier, nodes, settings, out, watcher)
    else:
        finished = deploy(courier, settings, out, watcher)
    say(f"The run is in {finished.folder}.")


def first_nodes(courier: Courier) -> list[int]:
    until = time.monotonic() + FIRST_NODE
    while time.monotonic() < until:
        nodes = sorted(node.node_id for node in courier.nodes())
        if nodes:
            return nodes
        courier.rest()
    raise RunError(f"No node has come within {FIRST_NODE:g} seconds; start one, then run again with the same out.")


def are_simulated(courier: Courier, nodes: list[int]) -> bool:
    """Whether they have no data of their own: then the server has all, and deals it out."""
    for node in nodes:
        replies = courier.gather({"first": Sending(node, HELLO, Parcel({}))}, FIRST_ANSWER)
        parcel = replies["first"].parcel if "first" in replies else None
        if parcel is not None:
            return bool(parcel.header.get("simulated"))
    raise RunError("No node answers; their logs tell why. Run again with the same out when they do.")
