"""Commands around a run: `run`, `partition`, `verify`."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.basics.escapes import for_terminal
from refprotofl.basics.units import counted
from refprotofl.cli.app import (
    INTERRUPTED,
    NOTHING_KEPT,
    DataDir,
    Device,
    File,
    Preset,
    RunFolder,
    Settings,
    Workers,
    app,
    nothing_kept_yet,
    read_path,
)
from refprotofl.cli.printing import complain, emit, notes, out, say
from refprotofl.cli.tables import Column, show
from refprotofl.errors import InputError, RunError

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment
    from refprotofl.simulation.run import Workers as Count


@app.command(
    epilog="Example: refprotofl run --preset small --set dataset=fashion-mnist --set refprotofl.keep=0.05 --out runs/a"
)
def run(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", parser=read_path, metavar="DIR", help="The run folder; a new one under runs/ else."),
    ] = None,
    data: DataDir = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    workers: Workers = "auto",
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Run an experiment, or go on with one. Neither file nor preset means --preset quick."""
    with nothing_kept_yet():
        count = read_workers(workers)
        experiment = _experiment_of(file, preset, settings or [], device, out_dir, resume)
        from refprotofl.cli.display import ProgressWatcher, print_summary
        from refprotofl.simulation.run import default_folder
        from refprotofl.simulation.run import run as run_experiment

    folder = out_dir or default_folder(experiment)
    watcher = ProgressWatcher(notes)
    try:
        finished = run_experiment(experiment, out=folder, data=data, workers=count, resume=resume, watcher=watcher)
    except KeyboardInterrupt:
        _tell_what_is_kept(folder, data, experiment.rounds)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        emit(json.dumps(finished.summary, indent=2) + "\n")
    else:
        print_summary(out, finished.summary, finished.folder)


def _tell_what_is_kept(folder: Path, data: Path | None, rounds: int) -> None:
    from refprotofl.records.checkpoint import read_manifest

    if not (folder / "experiment.json").exists():
        complain(NOTHING_KEPT)
        return
    done = read_manifest(folder / "checkpoint").get("progress", {}).get("round", 0)
    kept = f"{done} of {counted(rounds, 'round')}" if done else "the experiment, but no round yet"
    say(f"Kept in {for_terminal(folder)}: {kept}.", notes)
    complain(f"Interrupted. Go on with: {_go_on(folder, data)}")


def _go_on(folder: Path, data: Path | None) -> str:
    """The command that resumes, ready to be pasted."""
    place = [] if data is None else ["--data", str(data)]
    return shlex.join(["refprotofl", "run", "--resume", "--out", str(folder), *place])


def read_workers(text: str) -> "Count":
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"--workers {text}: allowed are auto or a whole number of at least 1.")
    return int(text)


def _experiment_of(
    file: Path | None, preset: str | None, settings: list[str], device: str | None, out_dir: Path | None, resume: bool
) -> "Experiment":
    """The experiment that was named; a run to go on with names its own, apart from the device."""
    from refprotofl.experiment import Experiment
    from refprotofl.experiment.presets import load_experiment
    from refprotofl.records.folder import read_experiment

    if resume and out_dir is None:
        raise InputError("--resume needs --out with the folder of the run to go on with.")
    unnamed = file is None and preset is None and not settings
    if resume and unnamed and out_dir is not None and (out_dir / "experiment.json").exists():
        return Experiment.parse({**read_experiment(out_dir).plain(), "device": device or "auto"})
    return load_experiment(file, preset, with_device(settings, device))


def with_device(settings: list[str], device: str | None) -> list[str]:
    """The settings with what --device says, which wins."""
    return settings if device is None else [*settings, f"device={device}"]


@app.command(epilog="Example: refprotofl partition --preset small --set alpha=0.1 --out partition.png")
def partition(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", parser=read_path, metavar="FILE", help="Draw it to this .png, .pdf or .svg."),
    ] = None,
) -> None:
    """Show which client holds how much of which class, as a table and as a picture."""
    from refprotofl.data import federate, load_dataset
    from refprotofl.experiment.presets import load_experiment
    from refprotofl.report.pictures.partition import draw_partition

    experiment = load_experiment(file, preset, settings or ())
    federated = federate(experiment, load_dataset(experiment.dataset, data, experiment.seed))
    counts, names = federated.class_counts(), federated.dataset.class_names
    columns = [Column(heading, numbers=True) for heading in ("client", "total", *map(for_terminal, names))]
    rows = [(client, sum(per_class), *per_class) for client, per_class in enumerate(counts.tolist())]
    show(columns, rows, f"{experiment.dataset}, {counted(len(federated.public_indices), 'public image')} held out")
    made = federated.partition_notes
    redraws, moved = counted(made.redraws, "redraw"), counted(made.moved, "sample")
    say(f"{made.kind}: {redraws}, {moved} moved by the repair step")
    if out_file is not None:
        caption = f"{experiment.dataset}, {made.kind}" + (f" {experiment.alpha:g}" if made.kind == "dirichlet" else "")
        say(draw_partition(counts, names, out_file, caption))


@app.command(epilog="Example: refprotofl verify runs/a runs/b")
def verify(
    run_folder: RunFolder,
    other: Annotated[
        Path | None,
        typer.Argument(help="A second run to compare with.", parser=read_path, metavar="[RUN]", show_default=False),
    ] = None,
) -> None:
    """Recompute a run's digest from its checkpoint; of two runs, name the first difference."""
    from refprotofl.engines.local.store import read_state
    from refprotofl.records.folder import read_experiment
    from refprotofl.records.verify import first_difference, verify_run
    from refprotofl.sides.models import build_models, initial_digests, initial_states

    for folder in (run_folder, other):
        if folder is not None:
            experiment = read_experiment(folder)
            initial = initial_states(experiment, build_models(experiment))
            found = verify_run(folder, initial_digests(experiment, initial), read_state)
            say(f"{folder}: round {found.round} is intact, state digest {found.state_digest}")
    if other is not None:
        difference = first_difference(run_folder, other)
        if difference is not None:
            raise RunError(difference)
        say("The two runs agree in every message and state.")
