"""Commands that use a run's result: `predict` and `export`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from refprotofl.basics.units import counted, percent
from refprotofl.cli.app import DataDir, RunFolder, app, read_path
from refprotofl.cli.printing import emit, notes, say

Client = Annotated[int, typer.Option("--client", help="Whose model: the client's number.", show_default=False)]


class TableFormat(StrEnum):
    csv = "csv"
    json = "json"


class ModelFormat(StrEnum):
    safetensors = "safetensors"
    onnx = "onnx"


@app.command(epilog="Example: refprotofl predict runs/a --client 3 photos/ --out labels.csv")
def predict(
    run_folder: RunFolder,
    data: Annotated[str, typer.Argument(help="A .npz or .npy, an image or a folder of them, or a data set's name.")],
    client: Client,
    table_format: Annotated[TableFormat, typer.Option("--format", help="csv or json.")] = TableFormat.csv,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", parser=read_path, metavar="FILE", help="Write here instead of to the screen."),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Label images with one client's model: label and probability of every class."""
    from refprotofl.handover import load_trained, write_predictions
    from refprotofl.handover import predict as label

    predictions = label(load_trained(run_folder, client), data, data_dir)
    text = write_predictions(predictions, table_format.value, out_file)
    if out_file is None:
        emit(text)
    else:
        say(f"{out_file}: {counted(len(predictions.predicted), 'prediction')}")
    if predictions.accuracy is not None:
        say(f"Accuracy where labels are known: {percent(predictions.accuracy)}", notes)


@app.command(epilog="Example: refprotofl export runs/a --client 3 --format onnx --out model-of-client-3")
def export(
    run_folder: RunFolder,
    client: Client,
    out_folder: Annotated[
        Path, typer.Option("--out", parser=read_path, metavar="DIR", help="The new folder.", show_default=False)
    ],
    model_format: Annotated[
        ModelFormat, typer.Option("--format", help="safetensors, or onnx (an extra) beside it.")
    ] = ModelFormat.safetensors,
) -> None:
    """Write one client's model with a model card, to be used elsewhere."""
    from refprotofl.handover import export as write_model
    from refprotofl.handover import load_trained

    for path in write_model(load_trained(run_folder, client), out_folder, model_format.value):
        say(str(path))
