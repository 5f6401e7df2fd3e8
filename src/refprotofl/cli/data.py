"""Commands about data sets: `data list`, `data fetch`, `data check`."""

from typing import Annotated

import typer
from rich.table import Table

from refprotofl.cli.app import DataDir, Settings, app, out, show

data_app = typer.Typer(
    no_args_is_help=True,
    help="The data sets: what is here, fetching, checking.",
    epilog="Example: refprotofl data list",
)
app.add_typer(data_app, name="data")


@data_app.command("list", epilog="Example: refprotofl data list --data ~/datasets")
def data_list(data: DataDir = None) -> None:
    """Show the known data sets and where they are."""
    from refprotofl.basics.units import size
    from refprotofl.data import list_datasets

    table = Table()
    for heading in ("name", "where", "size", "images", "classes", "source"):
        table.add_column(heading, overflow="fold")
    for row in list_datasets(data):
        table.add_row(row.name, row.where, size(row.size), f"{row.images:,}", str(row.classes), row.source)
    show(table)


@data_app.command("fetch", epilog="Example: refprotofl data fetch fashion-mnist")
def data_fetch(name: Annotated[str, typer.Argument(help="A known data set.")], data: DataDir = None) -> None:
    """Download a data set, with checksums; what is here already is left alone."""
    from refprotofl.data import fetch

    out.print(f"{name}: {fetch(name, data)}", soft_wrap=True)


@data_app.command("check", epilog="Example: refprotofl data check cifar10, or a path of your own")
def data_check(
    name: Annotated[str, typer.Argument(help="A data set, as in dataset = …")],
    settings: Settings = None,
    data: DataDir = None,
) -> None:
    """Read a data set as a whole and tell what is in it; with --set resize=32 or partition=natural as a run would."""
    from refprotofl.data import check
    from refprotofl.data.reading import reading_of
    from refprotofl.experiment.presets import load_experiment

    experiment = load_experiment(settings=settings or ())
    found = check(name, data, experiment.seed, reading_of(experiment))
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
    show(table)
    if found.clients:
        shown = ", ".join(f"{client} ({count:,})" for client, count in list(found.clients.items())[:50])
        out.print(f"{len(found.clients)} clients, with training images: {shown}", markup=False, soft_wrap=True)
    for note in found.notes:
        out.print(note, markup=False, highlight=False, soft_wrap=True)
    for words, files in (("checksums match", found.verified), ("not the published contents", found.unverified)):
        if files:
            out.print(f"{words}: {', '.join(files)}", soft_wrap=True)
