"""Commands about data sets: `data list`, `data fetch`, `data check`, `data describe`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.cli.app import DataDir, Group, Settings, app, read_path
from refprotofl.cli.next_command import show_next, with_settings
from refprotofl.cli.output import Column, notes, say, show
from refprotofl.core import RefProtoFLError, counted, for_file_name, for_terminal

if TYPE_CHECKING:
    from refprotofl.data import FederatedData
    from refprotofl.data.description import Description
    from refprotofl.experiment import Experiment

data_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="List, download and check data sets.",
    epilog="Example: refprotofl data list",
)
app.add_typer(data_app, name="data")
MOST_SHOWN = 30  # clients and classes in a table


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
    from refprotofl.data import check, reading_of
    from refprotofl.experiment import load_experiment
    from refprotofl.inputs import find_kind

    experiment = load_experiment(settings=settings or ())
    found = check(name, data, experiment.seed, reading_of(experiment))
    kind = find_kind(found.kind)
    say(
        f"{found.name} at {found.where}: {counted(found.train_inputs, f'training {kind.noun}')} and "
        f"{counted(found.test_inputs, f'test {kind.noun}')} of {found.shape}"
    )
    columns = (Column("class", wraps=30), Column("training", numbers=True), Column("test", numbers=True))
    show(columns, list(zip(found.class_names, found.train_counts, found.test_counts, strict=True)))
    if found.clients:
        shown = ", ".join(f"{client} ({count:,})" for client, count in list(found.clients.items())[:50])
        say(f"{counted(len(found.clients), 'client')}, with training {kind.plural}: {shown}")
    for note in found.notes:
        say(note)
    for words, files in (("checksums match", found.verified), ("not the published files", found.unverified)):
        if files:
            say(f"{words}: {', '.join(files)}")


@data_app.command("describe", epilog="Example: refprotofl data describe heart.csv --set data.label=sick")
def data_describe(
    name: Annotated[str, typer.Argument(help="A table, a .npz file or a folder.", metavar="FILE")],
    settings: Settings = None,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", parser=read_path, metavar="FILE", help="Draw who holds what to a .png, .pdf or .svg."),
    ] = None,
) -> None:
    """Show the columns, classes and clients of a file or folder, and the command that trains on it.

    The roles of columns are guesses unless --set names them.
    """
    from refprotofl.data.description import describe

    found = describe(name, settings or ())
    _show_profiles(found)
    chosen = [f"dataset={name}", *found.settings]
    try:
        experiment, data, extra = _try_out(chosen, settings or [])
    except RefProtoFLError:
        say("It cannot be read with these roles; --set data.label=… and the like name the columns.", notes)
        raise
    _show_holders(experiment, data, out_file)
    folder = Path("runs") / for_file_name(Path(name).stem)
    words = ["refprotofl", "run", "--preset", "quick"]
    show_next([*words, *with_settings([*chosen, *extra]), "--out", str(folder)])


def _show_profiles(found: "Description") -> None:
    if not found.profiles:
        return
    columns = (Column("name", wraps=20), Column("values", wraps=14), Column("distinct", numbers=True))
    rest = (Column("missing", numbers=True), Column("such as", wraps=20), Column("role"))
    rows = [
        (
            one.name,
            one.form,
            f"{one.distinct:,}" if one.distinct <= 1000 else "> 1,000",
            one.missing,
            one.examples,
            one.role or "feature",
        )
        for one in found.profiles
    ]
    seen = "" if found.complete else "the first "
    show((*columns, *rest), rows, f"{found.path}: {seen}{counted(found.rows, 'row')}" if found.rows else found.path)


def _try_out(chosen: list[str], given: list[str]) -> "tuple[Experiment, FederatedData, list[str]]":
    """Return the experiment that the settings make, its data, and further settings that they need."""
    from refprotofl.data import default_per_class, load_federated
    from refprotofl.experiment import load_experiment, set_keys
    from refprotofl.inputs import find_kind

    known = set_keys(given)
    apart = load_experiment(None, "quick", [*chosen, "public.per-class=0", "validation=0"])
    data = load_federated(apart)
    kind = find_kind(data.dataset.kind)
    extra = [] if "model.name" in known else [f"model.name={kind.backbone}"]
    smallest = min(int(count) for count in data.class_counts().sum(axis=0))
    if "public.per-class" not in known and smallest <= 2 * min(5, default_per_class(data.dataset.num_classes)):
        extra.append("public.per-class=0")
    experiment = load_experiment(None, "quick", [*chosen, *extra])
    return experiment, load_federated(experiment), extra


def _show_holders(experiment: "Experiment", data: "FederatedData", out_file: Path | None) -> None:
    """Print and draw the training samples of each client by class."""
    from refprotofl.inputs import find_kind
    from refprotofl.report import Panel, draw_partitions

    kind, counts, names = find_kind(data.dataset.kind), data.class_counts(), data.dataset.class_names
    clients = data.client_names or tuple(map(str, range(len(counts))))
    tests = [len(own) for own in data.own_test_indices]
    shown = names if len(names) <= MOST_SHOWN else ()
    columns = [
        Column("client", wraps=16),
        *(Column(one, numbers=True) for one in ("train", "test", *map(for_terminal, shown))),
    ]
    rows = [
        (client, sum(own), test, *(own if shown else ()))
        for client, own, test in zip(clients, counts.tolist(), tests, strict=True)
    ][:MOST_SHOWN]
    drawn = "" if data.client_names else f", drawn ({experiment.partition_title})"
    total = f"{counted(int(counts.sum()) + data.public_size, 'training sample')}, {sum(tests):,} for testing"
    sizes = f"{kind.describe(data.dataset.shape)}, {counted(len(names), 'class')}, {counted(len(clients), 'client')}"
    say(f"{total}: {sizes}{drawn}")
    show(columns, rows)
    if len(clients) > MOST_SHOWN:
        say(f"and {len(clients) - MOST_SHOWN:,} more clients")
    for note in data.notes:
        say(note, notes)
    if out_file is not None:
        say(draw_partitions([Panel(counts, names, Path(experiment.dataset).name, data.client_names)], out_file))
