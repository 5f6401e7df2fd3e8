"""Commands for the owner of a device: `node` and `deploy doctor`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.cli.app import app, read_path
from refprotofl.cli.deploy import LogFormatOption, deploy_app
from refprotofl.cli.output import say
from refprotofl.core import InputError

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment

Kit = Annotated[Path, typer.Argument(help="The folder of a node's kit.", parser=read_path, metavar="KIT")]


@app.command(epilog="Example: refprotofl node kits/node-0")
def node(kit: Kit, log_format: LogFormatOption = "text") -> None:
    """Run a node of a deployment until it is stopped.

    It runs installed code only, in one process that keeps data and model in memory, and reconnects by itself.
    """
    from refprotofl.deploy.log import set_format
    from refprotofl.deploy.node_config import read_node_config

    set_format(log_format)
    read_node_config(kit).transport_kind.serve(kit)


@deploy_app.command("doctor", epilog="Example: refprotofl deploy doctor site/kits/node-0 --experiment experiment.toml")
def doctor(
    kit: Kit,
    experiment: Annotated[
        Path | None,
        typer.Option(help="An experiment as TOML, or a run's experiment.json.", parser=read_path, metavar="FILE"),
    ] = None,
) -> None:
    """Check a node before it joins: versions, server, clock, admission, disk, memory, data, time per step."""
    from refprotofl.deploy.doctor import examine

    known = None if experiment is None else _read_experiment(experiment)
    bad = []
    for one in examine(kit, known):
        sign = {True: "ok", False: "FIX", None: "?"}[one.fine]
        say(f"{sign:>3}  {one.subject}: {one.words}")
        bad += [one.subject] if one.fine is False else []
    if bad:
        raise InputError(f"This node cannot take part yet: {', '.join(bad)}.")
    say("This node can take part.")


def _read_experiment(path: Path) -> "Experiment":
    from refprotofl.experiment import load_experiment
    from refprotofl.records import read_experiment_file

    try:
        return load_experiment(path, None, []) if path.suffix == ".toml" else read_experiment_file(path)
    except OSError:
        raise InputError(f"Path not found: {path}. Give an experiment.toml or a run's experiment.json.") from None
