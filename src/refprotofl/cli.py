"""The command line: commands, options, error messages, exit codes."""

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from click.exceptions import ClickException
from rich.console import Console
from rich.table import Table

from refprotofl.errors import InputError, RefProtoFLError, RunError

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment
    from refprotofl.run import Workers

INTERRUPTED = 130

app = typer.Typer(
    help="Federated learning over thin links: private backbones, a shared adapter, prototypes as anchors.",
    epilog="Exit codes: 0 done, 2 your input, 3 data missing or corrupt, 4 a run failed, 130 interrupted (resumable).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
data_app = typer.Typer(no_args_is_help=True, help="The data sets: what is here, fetching, checking.")
bench_app = typer.Typer(no_args_is_help=True, help="Measurements that you can repeat on your machine.")
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")

File = Annotated[Path | None, typer.Argument(help="An experiment as TOML.", show_default=False)]
Preset = Annotated[str | None, typer.Option(help="quick, small, full or paper.", show_default=False)]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="key=value, such as train.lr=0.05; repeatable.", show_default=False)
]
DataDir = Annotated[
    Path | None, typer.Option("--data", help="Where data sets lie; else $REFPROTOFL_DATA or the user's cache.")
]
RunArgument = Annotated[Path, typer.Argument(help="A run folder.", show_default=False)]

out = Console(soft_wrap=False)
notes = Console(stderr=True)


def main() -> NoReturn:
    """Entry point: what a user can mend is a sentence, never a stack trace."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
    except RefProtoFLError as problem:
        _complain(str(problem))
        sys.exit(problem.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _complain("Interrupted.")
        sys.exit(INTERRUPTED)
    except Exception as problem:
        if os.environ.get("REFPROTOFL_DEBUG"):
            traceback.print_exc()
        _complain(
            f"Internal error: {type(problem).__name__}: {problem}. REFPROTOFL_DEBUG=1 shows where; please report it."
        )
        sys.exit(RunError.exit_code)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _complain(sentence: str) -> None:
    notes.print("[bold red]error:[/bold red] ", end="")
    notes.print(sentence, markup=False, highlight=False, soft_wrap=True)


@app.command(
    epilog="Example: refprotofl run --preset small --set dataset=fashion-mnist --set refprotofl.keep=0.05 --out runs/a"
)
def run(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    out_dir: Annotated[Path | None, typer.Option("--out", help="The run folder; a new one under runs/ else.")] = None,
    data: DataDir = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    workers: Annotated[
        str, typer.Option(help="Processes that clients run in: a number, or auto for all cores.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Run an experiment, or go on with one. Neither file nor preset means --preset quick."""
    count = _read_workers(workers)
    experiment = _experiment_of(file, preset, settings, out_dir, resume)
    from refprotofl.display import ProgressWatcher, print_summary
    from refprotofl.run import default_folder
    from refprotofl.run import run as run_experiment

    folder = out_dir or default_folder(experiment)
    watcher = ProgressWatcher(notes)
    try:
        finished = run_experiment(experiment, out=folder, data=data, workers=count, resume=resume, watcher=watcher)
    except KeyboardInterrupt:
        watcher.close()
        _complain(f"Interrupted. Go on with: refprotofl run --resume --out {folder}")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        watcher.close()
    if as_json:
        print(json.dumps(finished.summary, indent=2))
    else:
        print_summary(out, finished.summary, finished.folder)


def _read_workers(text: str) -> "Workers":
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"--workers {text}: allowed are auto or a whole number of at least 1.")
    return int(text)


def _experiment_of(
    file: Path | None, preset: str | None, settings: list[str] | None, out_dir: Path | None, resume: bool
) -> "Experiment":
    """The experiment that was named; a run to go on with names its own."""
    from refprotofl.presets import load_experiment
    from refprotofl.records.folder import read_experiment

    if resume and out_dir is None:
        raise InputError("--resume needs --out with the folder of the run to go on with.")
    unnamed = file is None and preset is None and not settings
    if resume and unnamed and out_dir is not None and (out_dir / "experiment.json").exists():
        return read_experiment(out_dir)
    return load_experiment(file, preset, settings or ())


@app.command(epilog="Example: refprotofl partition --preset small --set alpha=0.1 --out partition.png")
def partition(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
    out_file: Annotated[Path | None, typer.Option("--out", help="Draw it to this .png, .pdf or .svg.")] = None,
) -> None:
    """Show which client holds how much of which class, as a table and as a picture."""
    from refprotofl.data import draw_partition, federate, load_dataset, partition_table
    from refprotofl.presets import load_experiment

    experiment = load_experiment(file, preset, settings or ())
    federated = federate(experiment, load_dataset(experiment.dataset, data, experiment.seed))
    counts, names = federated.class_counts(), federated.dataset.class_names
    table = Table(title=f"{experiment.dataset}, {len(federated.public_indices)} public images held out")
    for heading in ("client", "total", *names):
        table.add_column(heading, justify="right")
    for client, total, per_class in partition_table(counts):
        table.add_row(str(client), str(total), *(str(count) for count in per_class))
    out.print(table)
    made = federated.partition_notes
    out.print(f"{made.kind}: {made.redraws} redraws, {made.moved} samples moved by the repair step")
    if out_file is not None:
        caption = f"{experiment.dataset}, {made.kind}" + (f" {experiment.alpha:g}" if made.kind == "dirichlet" else "")
        out.print(draw_partition(counts, names, out_file, caption))


@data_app.command("list", epilog="Example: refprotofl data list --data ~/datasets")
def data_list(data: DataDir = None) -> None:
    """Show the known data sets and where they are."""
    from refprotofl.data import list_datasets
    from refprotofl.units import size

    table = Table()
    for heading in ("name", "where", "size", "images", "classes", "source"):
        table.add_column(heading, overflow="fold")
    for row in list_datasets(data):
        table.add_row(row.name, row.where, size(row.size), f"{row.images:,}", str(row.classes), row.source)
    out.print(table)


@data_app.command("fetch", epilog="Example: refprotofl data fetch fashion-mnist")
def data_fetch(name: Annotated[str, typer.Argument(help="A known data set.")], data: DataDir = None) -> None:
    """Download a data set, with checksums; what is here already is left alone."""
    from refprotofl.data import fetch

    out.print(f"{name}: {fetch(name, data)}", soft_wrap=True)


@data_app.command("check", epilog="Example: refprotofl data check cifar10, or a path of your own")
def data_check(
    name: Annotated[str, typer.Argument(help="A data set, as in dataset = …")], data: DataDir = None
) -> None:
    """Read a data set as a whole and tell what is in it."""
    from refprotofl.data import check

    found = check(name, data)
    out.print(
        f"{found.name} at {found.where}: {found.train_images:,} training and {found.test_images:,} test images of "
        f"{found.shape}",
        soft_wrap=True,
    )
    table = Table()
    for heading in ("class", "training", "test"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for row in zip(found.class_names, found.train_counts, found.test_counts, strict=True):
        table.add_row(*map(str, row))
    out.print(table)
    for words, files in (("checksums match", found.verified), ("not the published contents", found.unverified)):
        if files:
            out.print(f"{words}: {', '.join(files)}", soft_wrap=True)


@app.command(epilog="Example: refprotofl verify runs/a runs/b")
def verify(
    run_folder: RunArgument,
    other: Annotated[Path | None, typer.Argument(help="A second run to compare with.", show_default=False)] = None,
) -> None:
    """Recompute a run's digest from its checkpoint; of two runs, name the first difference."""
    from refprotofl.models import build_model
    from refprotofl.records.folder import read_experiment
    from refprotofl.records.verify import first_difference, verify_run
    from refprotofl.state import digest_state

    for folder in (run_folder, other):
        if folder is not None:
            initial = digest_state(dict(build_model(read_experiment(folder)).read_backbone()))
            found = verify_run(folder, initial)
            out.print(f"{folder}: round {found.round} is intact, state digest {found.state_digest}", soft_wrap=True)
    if other is not None:
        difference = first_difference(run_folder, other)
        if difference is not None:
            raise RunError(difference)
        out.print("The two runs agree in every message and state.")
