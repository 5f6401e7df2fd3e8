"""Commands for the owner of a device: `node` and `deploy doctor`."""

from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from click import Context
from typer.core import TyperGroup

from refprotofl.cli.app import app, read_path
from refprotofl.cli.deploy import LogFormatOption, deploy_app
from refprotofl.cli.output import say
from refprotofl.core import InputError, counted, percent

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment

Kit = Annotated[Path, typer.Argument(help="The folder of a node's kit.", parser=read_path, metavar="KIT")]


class _NodeGroup(TyperGroup):
    """The commands of `node`; without one, `node KIT` runs the node of a kit."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


node_app = typer.Typer(
    cls=_NodeGroup,
    no_args_is_help=True,
    help="Run a node of a deployment (node KIT), or fine-tune its model.",
    epilog="Example: refprotofl node kits/node-0",
)
app.add_typer(node_app, name="node")


@node_app.command("run", epilog="Example: refprotofl node kits/node-0")
def node(kit: Kit, log_format: LogFormatOption = "text") -> None:
    """Run a node of a deployment until it is stopped.

    It runs installed code only, in one process that keeps data and model in memory, and reconnects by itself.
    """
    from refprotofl.deploy.log import set_format
    from refprotofl.deploy.node_config import read_node_config

    set_format(log_format)
    read_node_config(kit).transport_kind.serve(kit)


@node_app.command("finetune", epilog="Example: refprotofl node finetune kits/node-0 --epochs 3")
def finetune(
    kit: Kit,
    epochs: Annotated[int, typer.Option(help="Passes over this node's data.", min=1, max=10_000)] = 3,
) -> None:
    """Make this device's own model: fine-tune the newest shared one on its data. Nothing is sent.

    A node that joined too late to train can do so, too. predict and export then use the fine-tuned model, until a newer
    shared one comes.
    """
    from refprotofl.deploy.node_config import read_node_config
    from refprotofl.export.personalise import finetune

    config = read_node_config(kit)
    with chdir(kit):  # as start.sh does: the owner's own code is found from there
        found = finetune(config, epochs)
    say(f"Fine-tuned the model of round {found.round} on {counted(found.samples, 'sample')} of its own.")
    if found.before is not None and found.after is not None:
        say(f"On its own test samples: {percent(found.before)}, before; {percent(found.after)}, now.")
    say(f"Use it with: refprotofl predict {config.folder} SAMPLES")


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
