"""The command `partition`."""

from pathlib import Path
from typing import Annotated

import typer

from refprotofl.cli.app import DataDir, File, Preset, Seed, Settings, app, read_path, with_seed
from refprotofl.cli.output import Column, notes, say, show
from refprotofl.core import counted, for_terminal


@app.command(epilog="Example: refprotofl partition --preset small --set alpha=0.1 --out partition.png")
def partition(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = None,
    data: DataDir = None,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", parser=read_path, metavar="FILE", help="Also draw it to this .png, .pdf or .svg file."),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            parser=read_path,
            metavar="DIR",
            help="Write one .npz per client, public.npz and test.npz to this new folder, for a deployment.",
        ),
    ] = None,
) -> None:
    """Show the samples of each client by class, as a table and as a picture."""
    from refprotofl.data import export_federation, load_federated
    from refprotofl.data.federated import under
    from refprotofl.experiment import load_experiment
    from refprotofl.inputs import find_kind
    from refprotofl.report import Panel, draw_partitions

    experiment = load_experiment(file, preset, with_seed(settings, seed))
    federated = load_federated(experiment, data)
    counts, names = federated.class_counts(), federated.dataset.class_names
    clients = federated.client_names or tuple(map(str, range(len(counts))))
    columns = [Column(heading, numbers=True) for heading in ("client", "total", *map(for_terminal, names))]
    rows = [(client, sum(one), *one) for client, one in zip(clients, counts.tolist(), strict=True)]
    noun = find_kind(federated.dataset.kind).noun
    kept = "separate" if federated.own_public is not None else "held out"
    show(columns, rows, f"{experiment.dataset}, {counted(federated.public_size, f'public {noun}')} {kept}")
    made = federated.partition_notes
    if made.kind == "natural":
        say(f"natural: {counted(len(clients), 'client')} of the data set, {len(made.left_out)} left out")
    else:
        redraws, moved = counted(made.redraws, "redraw"), counted(made.moved, "sample")
        say(f"{experiment.partition_title}: {redraws}, {moved} moved by the repair step")
    if made.shift:
        say(f"noise: standard deviation {made.shift[0]:.3g} on client 0 to {made.shift[-1]:.3g} on the last")
    for note in federated.notes:
        say(note, notes)
    if out_file is not None:
        caption = f"{experiment.dataset}, {experiment.partition_title}"
        say(draw_partitions([Panel(counts, names, caption, federated.client_names, made.shift)], out_file))
    if export is not None:
        from refprotofl.federation import prepare, resolve

        resolved = resolve(prepare(experiment), federated)
        seen = resolved.known_input
        say(f"Wrote {counted(len(export_federation(under(federated, seen), export, seen)), 'file')} to {export}.")
