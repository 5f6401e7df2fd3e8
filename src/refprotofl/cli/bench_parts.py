"""Measurements of single parts: `bench aggregate`, `bench codes`, `bench kernels`."""

from typing import Annotated

import typer

from refprotofl.cli.app import DataDir, File, Preset, Settings, limit_kernels
from refprotofl.cli.bench import AsJson, Repeats, bench_app, present, tell
from refprotofl.core.errors import InputError
from refprotofl.core.user_code import is_reference


@bench_app.command("aggregate", epilog="Example: refprotofl bench aggregate --uploads 1000 --keep 0.1")
def bench_aggregate(
    uploads: Annotated[int, typer.Option(min=1, help="Clients that upload in the round.")] = 1000,
    size: Annotated[int, typer.Option(min=1, help="Parameters of the adapter.")] = 267_786,
    keep: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of them that is sent.")] = 0.1,
    repeats: Repeats = 3,
    as_json: AsJson = False,
) -> None:
    """Time and memory that the masked uploads of a round take at the server, on one core."""
    limit_kernels(None, None)
    from refprotofl.bench.aggregation import measure_aggregation

    present(measure_aggregation(uploads, size, keep, repeats, tell), as_json)


@bench_app.command("codes", epilog="Example: refprotofl bench codes --preset small --set dataset=fashion-mnist")
def bench_codes(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds whose changes are coded.")] = 3,
    as_json: AsJson = False,
) -> None:
    """What thin's codes leave out of the changes that clients of FedAvg make in your experiment, at the same length."""
    limit_kernels(file, settings)
    from refprotofl.bench.codes import changes_of_run, measure_codes
    from refprotofl.experiment.presets import load_experiment

    whole = ["method=fedavg", "share=full", "compress.name=none", "fraction=1"]
    whole += [f"rounds={rounds}", f"evaluate.every={rounds}"]
    experiment = load_experiment(file, preset, [*(settings or ()), *whole])
    present(measure_codes(changes_of_run(experiment, data)), as_json)


def _own_backbone(settings: list[str]) -> str | None:
    """The one thing that can be set: a backbone of the user's own."""
    pairs = [setting.partition("=") for setting in settings]
    if not pairs:
        return None
    name = pairs[-1][2].strip()
    if {key.strip() for key, _, _ in pairs} != {"model.name"} or not is_reference(name):
        raise InputError("bench kernels takes one setting: --set model.name=module:function, a backbone of your own.")
    return name


@bench_app.command("kernels", epilog="Example: refprotofl bench kernels --model resnet18 --repeats 15")
def bench_kernels(
    model: Annotated[str | None, typer.Option(help="resnet18, cnn or mlp; all unless given.")] = None,
    cifar_stem: Annotated[bool, typer.Option("--cifar-stem", help="resnet18 with that stem too: slow.")] = False,
    settings: Settings = None,
    repeats: Repeats = 7,
    as_json: AsJson = False,
) -> None:
    """How much faster model.kernel = "fast" is than "plain", and than eager PyTorch, for each model.

    With --set model.name=module:function a backbone of your own in both layouts, and the line to add.
    """
    limit_kernels(None, None)
    from refprotofl.bench.kernels import measure_kernels, measure_layouts
    from refprotofl.models.kernels import FAST

    own = _own_backbone(settings or [])
    if own is not None:
        present(measure_layouts(own, repeats=repeats, tell=tell), as_json)
        return
    names = list(dict.fromkeys(row[0] for row in FAST))
    if model is not None and model not in names:
        raise InputError(f"--model {model}: there are {', '.join(names)}.")
    rows = [row for row in FAST if row[0] == (model or row[0]) and (cifar_stem or "cifar" not in row)]
    present(measure_kernels(rows, repeats=repeats, tell=tell), as_json)
