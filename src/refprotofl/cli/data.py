"""Commands about data sets: `data list`, `data fetch`, `data check`."""

from typing import Annotated

import typer

from refprotofl.cli.app import DataDir, Settings, app
from refprotofl.cli.output import Column, say, show
from refprotofl.core import counted

data_app = typer.Typer(
    no_args_is_help=True,
    help="List, download and check data sets.",
    epilog="Example: refprotofl data list",
)
app.add_typer(data_app, name="data")


@data_app.command("list", epilog="Example: refprotofl data list --data ~/datasets")
def data_list(data: DataDir = None) -> None:
    """Show the known data sets and where they are."""
    from refprotofl.core import size
    from refprotofl.data import list_datasets

    headings = (Column("name"), Column("where", wraps=24), Column("size", numbers=True), Column("images", numbers=True))
    rows = [
        (row.name, row.where, size(row.size), f"{row.images:,}", row.classes, row.source) for row in list_datasets(data)
    ]
    show((*headings, Column("classes", numbers=True), Column("source", wraps=40)), rows)


@data_app.command("fetch", epilog="Example: refprotofl data fetch fashion-mnist")
def data_fetch(name: Annotated[str, typer.Argument(help="A known data set.")], data: DataDir = None) -> None:
    """Download a data set and verify its checksums; existing files are kept."""
    from refprotofl.data import fetch

    say(f"{name}: {fetch(name, data)}")


@data_app.command("check", epilog="Example: refprotofl data check cifar10, or a path of your own")
def data_check(
    name: Annotated[str, typer.Argument(help="A data set's name or path, as for the key dataset.")],
    settings: Settings = None,
    data: DataDir = None,
) -> None:
    """Read a whole data set and print its contents; --set resize=32 or partition=natural reads it as a run would."""
    from refprotofl.data import check
    from refprotofl.data.reading import reading_of
    from refprotofl.experiment.presets import load_experiment

    experiment = load_experiment(settings=settings or ())
    found = check(name, data, experiment.seed, reading_of(experiment))
    say(
        f"{found.name} at {found.where}: {counted(found.train_inputs, 'training image')} and "
        f"{counted(found.test_inputs, 'test image')} of {found.shape}"
    )
    columns = (Column("class", wraps=30), Column("training", numbers=True), Column("test", numbers=True))
    show(columns, list(zip(found.class_names, found.train_counts, found.test_counts, strict=True)))
    if found.clients:
        shown = ", ".join(f"{client} ({count:,})" for client, count in list(found.clients.items())[:50])
        say(f"{counted(len(found.clients), 'client')}, with training images: {shown}")
    for note in found.notes:
        say(note)
    for words, files in (("checksums match", found.verified), ("not the published files", found.unverified)):
        if files:
            say(f"{words}: {', '.join(files)}")
