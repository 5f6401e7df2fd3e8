"""Commands for real devices: `deploy init`, `start`, `status`, `stop` and `doctor`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.basics.hosts import with_port
from refprotofl.basics.units import counted
from refprotofl.cli.app import app, read_path
from refprotofl.cli.printing import say, warn
from refprotofl.cli.tables import Column, show
from refprotofl.errors import InputError, RunError

if TYPE_CHECKING:
    from refprotofl.deploying.kits import Deployment

deploy_app = typer.Typer(
    no_args_is_help=True,
    help="Run on real devices over Flower: certificates and kits, the server, a check of a node.",
    epilog="Example: refprotofl deploy init site --nodes 3 --host server.example",
)
app.add_typer(deploy_app, name="deploy")

SILENT = "Flower's telemetry and update checks are off, here and in every kit."

WORDLESS = {  # what Flower says of a ServerApp that could not say why it ended
    "No heartbeat received from the task": "its ServerApp ended without a word, killed or out of memory.",
    "Task failed with unknown error.": "its ServerApp was told to end, by somebody or because its SuperLink ended.",
}

Folder = Annotated[Path, typer.Argument(help="A deployment's folder.", parser=read_path, metavar="DIR")]


@deploy_app.command("init", epilog="Example: refprotofl deploy init site --nodes 3 --host server.example")
def init(
    folder: Folder,
    nodes: Annotated[int, typer.Option(help="How many nodes get a kit.", min=1, max=10_000)],
    host: Annotated[str, typer.Option(help="The name or address that nodes reach the server under.")],
    port: Annotated[int, typer.Option(help="The server's port.", min=1, max=65_535)] = 8443,
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS and keys; only to try things out.")] = False,
) -> None:
    """Write a certificate authority, the server's certificate and a kit for each node; print what to do next.

    A node's private key is made on the node, and never anywhere else.
    """
    from refprotofl.deploying.kits import INSECURE, Deployment, write_deployment

    made = Deployment(folder, host, port, nodes, insecure)
    write_deployment(made)
    if insecure:
        warn(INSECURE)
    say(f"Wrote {made.server} and {counted(nodes, 'kit')} to {folder / 'kits'}. {SILENT}")
    _tell_what_is_next(made)


def _tell_what_is_next(made: "Deployment") -> None:
    """With what keeps Flower's own commands from asking home: in a shell of the user's nothing else does."""
    from refprotofl.deploying.kits import CONNECTION

    say("On the server:")
    say(f"  refprotofl deploy start {shlex.quote(str(made.folder))}")
    say("On each node, with its kit and refprotofl[flower] there:")
    say("  edit node.toml (data-path); refprotofl deploy doctor .; ./start.sh")
    say("On the server, once in every shell in which you use flwr:")
    say(f"  export {' '.join(f'{name}={shlex.quote(value)}' for name, value in made.variables.items())}")
    if not made.insecure:
        say("There, for each node.key.pub that a node sends:")
        say(f"  flwr supernode register node.key.pub {CONNECTION} --name node-0")
    say("There, in a checkout of refprotofl:")
    say(f"  flwr run . {CONNECTION} --stream --run-config 'clients={made.nodes} out=\"/whole/path/run\" …'")


@deploy_app.command("start", epilog="Example: refprotofl deploy start site")
def start(
    folder: Folder,
    bind: Annotated[str, typer.Option(help="The address to listen on; 127.0.0.1 for this machine alone.")] = "0.0.0.0",
) -> None:
    """Start the server's SuperLink in the background; what it knows is kept in a database."""
    from refprotofl.deploying.kits import INSECURE, read_deployment
    from refprotofl.deploying.server import start

    made = read_deployment(folder)
    if made.insecure:
        warn(INSECURE)
    process = start(made, bind)
    place, log = with_port(bind.strip("[]"), made.port), made.server / "superlink.log"
    say(f"The SuperLink runs as process {process} on {place}; its log is {log}. {SILENT}")


@deploy_app.command("status", epilog="Example: refprotofl deploy status site")
def status(folder: Folder) -> None:
    """Show the nodes and the runs; a last run that failed is told with its reason, and the exit code is 4."""
    from refprotofl.deploying.kits import read_deployment
    from refprotofl.deploying.server import ask_flower, names_of_nodes, process_of

    made = read_deployment(folder)
    process = process_of(made)
    if process is None:
        raise InputError(f"The SuperLink of {folder} does not run: refprotofl deploy start {folder}.")
    say(f"The SuperLink runs as process {process} on port {made.port}.")
    nodes = ask_flower(made, "supernode", "list").get("nodes", [])
    names = names_of_nodes(made)
    rows = [(names.get(one["node-id"], "-"), str(one["node-id"]), str(one.get("status"))) for one in nodes]
    show((Column("node"), Column("id"), Column("status")), rows, counted(len(rows), "node"))
    runs = ask_flower(made, "list").get("runs", [])
    told = [(str(one["run-id"]), str(one["status"]), _reason(one)) for one in runs]
    show(
        (Column("run"), Column("status"), Column("reason", wraps=40)),
        told,
        f"{counted(len(told), 'run')}, the newest first",
    )
    if told and told[0][1] == "finished:failed":
        raise RunError(
            f"The last run failed: {told[0][2]} Once that is mended, flwr run with the same out goes on with it."
        )


def _reason(run: dict[str, object]) -> str:
    details = str(run.get("status-details") or "")
    return "" if details == "N/A" else WORDLESS.get(details, details.removeprefix("ServerApp failed with exception: "))


@deploy_app.command("stop", epilog="Example: refprotofl deploy stop site")
def stop(folder: Folder) -> None:
    """Stop the SuperLink. Nodes wait for it; a run is gone on with by flwr run with the same out."""
    from refprotofl.deploying.kits import read_deployment
    from refprotofl.deploying.server import stop

    made = read_deployment(folder)
    say("The SuperLink is stopped." if stop(made) else f"No SuperLink of {folder} runs.")


@deploy_app.command("doctor", epilog="Example: refprotofl deploy doctor site/kits/node-0 --experiment experiment.json")
def doctor(
    kit: Annotated[Path, typer.Argument(help="A node's kit.", parser=read_path, metavar="KIT")],
    experiment: Annotated[
        Path | None,
        typer.Option(help="A run's experiment.json, for its classes and model.", parser=read_path, metavar="FILE"),
    ] = None,
) -> None:
    """Check a node before it joins: versions, server, clock, disk, memory, data, budget, seconds of a step."""
    from refprotofl.deploying.doctor import examine
    from refprotofl.records.folder import read_experiment_file

    try:
        known = None if experiment is None else read_experiment_file(experiment)
    except OSError:
        raise InputError(f"--experiment {experiment}: there is no such file; give a run's experiment.json.") from None
    bad = []
    for one in examine(kit, known):
        sign = {True: "ok", False: "MEND", None: "?"}[one.fine]
        say(f"{sign:>4}  {one.subject}: {one.words}")
        bad += [one.subject] if one.fine is False else []
    if bad:
        raise InputError(f"This node cannot take part yet: {', '.join(bad)}.")
    say("This node can take part.")
