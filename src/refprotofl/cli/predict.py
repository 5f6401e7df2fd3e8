"""Commands that use a run's result: `predict` and `export`."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.cli.app import DataDir, TrustCode, app, read_path
from refprotofl.cli.next_command import onnx_export, show_next
from refprotofl.cli.output import Column, emit, notes, say, show
from refprotofl.core import InputError, counted, percent

if TYPE_CHECKING:
    from refprotofl.evaluation import Confusion
    from refprotofl.export import TrainedModel

Place = Annotated[
    Path,
    typer.Argument(help="A run folder, or a node's store.", parser=read_path, metavar="RUN_FOLDER", show_default=False),
]
Client = Annotated[
    str | None,
    typer.Option("--client", help="The client, by name or number; not needed for a node's store.", show_default=False),
]
Clients = Annotated[
    str | None,
    typer.Option(
        "--client", help="The client, by name or number, or all; not needed for a node's store.", show_default=False
    ),
]
MOST_COLUMNS = 12  # classes of a confusion matrix that is printed in full


class TableFormat(StrEnum):
    csv = "csv"
    json = "json"


class ModelFormat(StrEnum):
    safetensors = "safetensors"
    onnx = "onnx"


@app.command(epilog="Example: refprotofl predict runs/a --client 3 photos/ --out labels.csv")
def predict(
    run_folder: Place,
    data: Annotated[
        str, typer.Argument(help="A table, a .npz or .npy file, an image, a folder of images, or a data set's name.")
    ],
    client: Clients = None,
    table_format: Annotated[TableFormat, typer.Option("--format", help="csv or json.")] = TableFormat.csv,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", parser=read_path, metavar="FILE", help="Write to this file instead of stdout."),
    ] = None,
    data_dir: DataDir = None,
    trust_code: TrustCode = False,
) -> None:
    """Classify samples with the model of one client or of each: predicted class and class probabilities."""
    from refprotofl.export import find_clients, predict_each, write_predictions
    from refprotofl.export import predict as predict_one
    from refprotofl.export.predictions import mean_accuracy, summed_confusion

    own = _own_model(run_folder, client, trust_code)
    if own is not None:
        made = [predict_one(own, data, data_dir)]
    else:
        made = predict_each(run_folder, find_clients(run_folder, _named(client)), data, data_dir, trust_code)
    text = write_predictions(made[0] if client != "all" else made, table_format.value, out_file)
    if out_file is None:
        emit(text)
    else:
        say(f"{out_file}: {counted(sum(len(one.predicted) for one in made), 'prediction')}")
    for note in made[0].notes:
        say(note, notes)
    counts = summed_confusion(made)
    if counts is not None:
        of_all = f", mean of {counted(len(made), 'client')}" if len(made) > 1 else ""
        say(f"Accuracy on labelled samples: {percent(mean_accuracy(made))}{of_all}", notes)
        _show_classes(counts, made[0].class_names)
    if own is None and client not in (None, "all"):
        show_next(onnx_export(run_folder, client))


def _show_classes(counts: "Confusion", names: Sequence[str]) -> None:
    """Print the confusion matrix, or for many classes the accuracy and most frequent wrong prediction of each."""
    from refprotofl.evaluation import most_confused, per_class_accuracy

    small = len(names) <= MOST_COLUMNS
    others = [Column(name, numbers=True) for name in names] if small else [Column("most frequent error", wraps=20)]
    columns = (Column("class", wraps=20), Column("samples", numbers=True), Column("accuracy", numbers=True), *others)
    rows = []
    for label, share in enumerate(per_class_accuracy(counts)):
        wrong = most_confused(counts, label)
        predicted = counts[label].tolist() if small else ["-" if wrong is None else names[wrong]]
        rows.append((names[label], int(counts[label].sum()), percent(share), *predicted))
    show(columns, rows, "Confusion matrix" if small else "Accuracy by class", console=notes)


@app.command(epilog="Example: refprotofl export runs/a --client 3 --format onnx --out model-of-client-3")
def export(
    run_folder: Place,
    out_folder: Annotated[
        Path, typer.Option("--out", parser=read_path, metavar="DIR", help="The new folder.", show_default=False)
    ],
    client: Client = None,
    model_format: Annotated[
        ModelFormat, typer.Option("--format", help="safetensors, or onnx (an extra) in addition.")
    ] = ModelFormat.safetensors,
    trust_code: TrustCode = False,
) -> None:
    """Export one client's model with a model card."""
    from refprotofl.export import export as write_model
    from refprotofl.export import find_clients, load_trained

    trained = _own_model(run_folder, client, trust_code)
    if trained is None:
        numbers = find_clients(run_folder, _named(client))
        if client == "all" and len(numbers) > 1:
            raise InputError("--client all: export takes one client at a time. Name one.")
        trained = load_trained(run_folder, numbers[0], trust_code)
    for path in write_model(trained, out_folder, model_format.value):
        say(str(path))


def _own_model(folder: Path, client: str | None, trust_code: bool) -> "TrainedModel | None":
    """Return the model of a node's store; None if the folder is not one."""
    from refprotofl.export.node_model import is_node_store, load_own

    if not is_node_store(folder):
        return None
    trained = load_own(folder, trust_code)
    if client not in (None, "all", str(trained.client), trained.client_name):
        raise InputError(f"--client {client}: {folder} is the store of client {trained.client}; leave --client out.")
    return trained


def _named(client: str | None) -> str:
    if client is None:
        raise InputError("--client is missing: a run folder has a model for each client. Name one.")
    return client
