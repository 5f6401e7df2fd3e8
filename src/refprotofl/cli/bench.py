"""The commands `bench …`: measurements that can be repeated on any machine."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from refprotofl.cli.app import DataDir, File, Group, Preset, Settings, app, limit_kernels, read_path
from refprotofl.cli.output import Column, emit, explain, notes, say, show
from refprotofl.core import InputError, counted, is_reference, read_whole

if TYPE_CHECKING:
    from torch import Tensor

    from refprotofl.bench.measuring import Report

Repeats = Annotated[int, typer.Option(min=1, help="Repetitions for the median, after a warm-up.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

bench_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Measure speed, memory and code lengths on your machine.",
    epilog="Example: refprotofl bench wire",
)
app.add_typer(bench_app, name="bench")


@bench_app.callback()
def bench() -> None:
    """Measure speed, memory and code lengths on your machine."""


def show_progress(progress: str) -> None:
    notes.print(progress, style="dim")


def present(report: "Report", as_json: bool, **more: "Report") -> None:
    """Print tables and the machine, or all of it as JSON; `more` are further tables by name."""
    from refprotofl.bench.measuring import conditions

    machine = conditions()
    if as_json:
        whole = {"title": report.title, "machine": machine, "rows": list(report.rows), "notes": list(report.notes)}
        emit(json.dumps(whole | {name: list(one.rows) for name, one in more.items()}, indent=2) + "\n")
        return
    for one in (report, *more.values()):
        first = one.rows[0].items()
        columns = [Column(name.replace("_", " "), not isinstance(value, str), 20) for name, value in first]
        show(columns, [[_cell(value) for value in row.values()] for row in one.rows], one.title)
        for note in one.notes:
            explain(note)
    explain(", ".join(f"{name} {value}" for name, value in machine.items()))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


@bench_app.command("wire", epilog="Example: refprotofl bench wire --preset small --set dataset=fashion-mnist")
def bench_wire(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds trained before masks are taken from the run.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Compare the mask code with the entropy bound, on uniform masks and on those of a run.

    Also compares the bits per value of uploads under value-code = "entropy" with their entropy.
    """
    limit_kernels(file, settings)
    from dataclasses import asdict

    from refprotofl.bench.codes import (
        VALUE_VARIANTS,
        code_table,
        masks_of_run,
        uniform_masks,
        value_table,
        values_of_run,
    )
    from refprotofl.bench.measuring import Report
    from refprotofl.experiment import load_experiment

    experiment = load_experiment(file, preset, settings or ())
    rows = [asdict(row) for row in code_table(uniform_masks() | masks_of_run(experiment, data, rounds))]
    sent: dict[str, Tensor] = {}
    for name, switches in VALUE_VARIANTS.items():
        asked = load_experiment(file, preset, [*(settings or ()), f"rounds={rounds}", *switches])
        sent |= {f"{name}: {field}": one for field, one in values_of_run(asked, data).items()}
    values = Report("Value code: bits per value and entropy", [asdict(row) for row in value_table(sent)])
    present(Report("Index code: bytes and the bound log2 C(d, K) / 8", rows), as_json, values=values)


@bench_app.command("aggregate", epilog="Example: refprotofl bench aggregate --uploads 1000 --keep 0.1")
def bench_aggregate(
    uploads: Annotated[int, typer.Option(min=1, help="Number of uploads in the round.")] = 1000,
    size: Annotated[int, typer.Option(min=1, help="Parameters of the adapter.")] = 267_786,
    keep: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the parameters that is sent.")] = 0.1,
    repeats: Repeats = 3,
    as_json: AsJson = False,
) -> None:
    """Measure the server's time and memory for the masked uploads of a round, on one core."""
    limit_kernels(None, None)
    from refprotofl.bench.aggregation import measure_aggregation

    present(measure_aggregation(uploads, size, keep, repeats, show_progress), as_json)


@bench_app.command("codes", epilog="Example: refprotofl bench codes --preset small --set dataset=fashion-mnist")
def bench_codes(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds whose updates are coded.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Compare the distortion of thin's codes at equal length, on client updates of FedAvg in your experiment."""
    limit_kernels(file, settings)
    from refprotofl.bench.codes import changes_of_run, measure_codes
    from refprotofl.experiment import load_experiment

    whole = ["method=fedavg", "share=full", "compress.name=none", "fraction=1"]
    whole += [f"rounds={rounds}", f"evaluate.every={rounds}"]
    experiment = load_experiment(file, preset, [*(settings or ()), *whole])
    present(measure_codes(changes_of_run(experiment, data)), as_json)


def _own_backbone(settings: list[str]) -> str | None:
    """Return the custom backbone that is set, the only setting allowed."""
    pairs = [setting.partition("=") for setting in settings]
    if not pairs:
        return None
    name = pairs[-1][2].strip()
    if {key.strip() for key, _, _ in pairs} != {"model.name"} or not is_reference(name):
        raise InputError(
            "bench kernels takes one setting only: --set model.name=module:function, for a custom backbone."
        )
    return name


@bench_app.command("kernels", epilog="Example: refprotofl bench kernels --model resnet18 --repeats 15")
def bench_kernels(
    model: Annotated[str | None, typer.Option(help="resnet18, cnn or mlp (default: all).")] = None,
    cifar_stem: Annotated[
        bool, typer.Option("--cifar-stem", help="Also measure resnet18 with the CIFAR stem (slow).")
    ] = False,
    settings: Settings = None,
    mode: Annotated[
        Literal["portable", "native"], typer.Option("--numerics", help="Kernels to measure: portable (AVX2) or native.")
    ] = "portable",
    repeats: Repeats = 7,
    as_json: AsJson = False,
) -> None:
    """Measure the speed-up of model.kernel = "fast" over "plain" and over eager PyTorch, for each model.

    With --set model.name=module:function, compare both memory layouts of a custom backbone and print the line to add.
    """
    limit_kernels(None, [f"numerics={mode}"])
    from refprotofl.bench.kernels import measure_kernels, measure_layouts
    from refprotofl.models.kernels import FAST

    own = _own_backbone(settings or [])
    if own is not None:
        present(measure_layouts(own, repeats=repeats, show_progress=show_progress), as_json)
        return
    names = list(dict.fromkeys(row[0] for row in FAST))
    if model is not None and model not in names:
        raise InputError(f"--model {model}: unknown model. Choose from {', '.join(names)}.")
    rows = [row for row in FAST if row[0] == (model or row[0]) and (cifar_stem or "cifar" not in row)]
    present(measure_kernels(rows, repeats=repeats, show_progress=show_progress), as_json)


Rounds = Annotated[int, typer.Option(min=1, help="Number of rounds.")]


@bench_app.command("overhead", epilog="Example: refprotofl bench overhead --set model.name=cnn --repeats 5")
def bench_overhead(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
    repeats: Repeats = 9,
    watched: Annotated[bool, typer.Option("--watched", help="Also measure with a viewer of the live page.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure the CPU time of a run relative to a bare PyTorch loop with the same model, samples and steps.

    Default: the CNN and ResNet-18 on synthetic 28 x 28 images.
    """
    limit_kernels(file, settings)
    from refprotofl.bench.overhead import MODELS, SETTINGS, measure_overheads
    from refprotofl.experiment import load_experiment

    given = settings or []
    choices = [given]
    if file is None and preset is None:
        named = [
            value.strip() for key, _, value in (one.partition("=") for one in given) if key.strip() == "model.name"
        ]
        sizes = [MODELS.get(named[-1], MODELS["cnn"])] if named else list(MODELS.values())
        choices = [[*SETTINGS, *size, *given] for size in sizes]
    experiments = [load_experiment(file, preset, choice) for choice in choices]
    present(measure_overheads(experiments, data, repeats, show_progress, watched), as_json)


@bench_app.command("workers", epilog="Example: refprotofl bench workers --workers 4")
def bench_workers(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
    workers: Annotated[int, typer.Option(min=2, help="Number of worker processes.")] = 2,
    rounds: Rounds = 10,
    repeats: Repeats = 3,
    as_json: AsJson = False,
) -> None:
    """Measure the time per round with worker processes relative to one process, and check that the results agree.

    Default: the CNN, 10 clients at Dirichlet 0.5, synthetic 28 x 28 images.
    """
    limit_kernels(file, settings)
    from refprotofl.bench.parallel import SETTINGS, measure_workers
    from refprotofl.experiment import load_experiment

    base = SETTINGS if file is None and preset is None else ()
    experiment = load_experiment(file, preset, [*base, *(settings or ()), f"rounds={rounds}"])
    present(measure_workers(experiment, data, workers, repeats, show_progress), as_json)


@bench_app.command(
    "scale", epilog="Example: refprotofl bench scale --model resnet18 --clients 25,50,100,200 --in-a-round all"
)
def bench_scale(
    model: Annotated[str, typer.Option(help="mlp, cnn, resnet18 or module:function.")] = "mlp",
    clients: Annotated[str, typer.Option(help="Numbers of clients, separated by commas.")] = "100,300,1000,3000,10000",
    in_a_round: Annotated[str, typer.Option(help="Clients that participate in a round, or all.")] = "100",
    samples: Annotated[int, typer.Option(min=1, help="Samples per client.")] = 10,
    rounds: Rounds = 4,
    quick: Annotated[bool, typer.Option("--quick", help="10, 30 and 100 clients, 10 per round, 2 rounds.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--out", parser=read_path, metavar="FILE", help="Also draw a chart to this .png, .pdf or .svg file."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure time per round and memory for growing numbers of clients, each in a separate process."""
    from refprotofl.bench.scale import draw_scale, measure_scale, points
    from refprotofl.report.pictures.style import check_suffix

    if quick:
        clients, in_a_round, rounds = "10,30,100", "10", 2
    if picture is not None:
        check_suffix(picture)
    counts = _counts("--clients", clients)
    taking_part = None if in_a_round == "all" else _counts("--in-a-round", in_a_round)[0]
    report = measure_scale(points(model, counts, taking_part, samples, rounds), show_progress)
    present(report, as_json)
    if picture is not None:
        title = f"{model}, {counted(samples, 'sample')} per client, {in_a_round} clients per round"
        sentence = draw_scale(report.rows, picture, title)
        if not as_json:
            say(sentence)


@bench_app.command(
    "numerics", epilog="Example: refprotofl bench numerics --preset small --set train-limit=3000 --set rounds=2"
)
def bench_numerics(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
    repeats: Repeats = 5,
    as_json: AsJson = False,
) -> None:
    """Measure the CPU time of a run under numerics = "portable" relative to "native", also with MKL_CBWR=COMPATIBLE.

    Default: the MLP on digits, the CNN and ResNet-18 on synthetic 28 x 28 images.
    """
    from refprotofl.bench.numerics import measure_numerics
    from refprotofl.bench.overhead import MODELS, SETTINGS
    from refprotofl.experiment import load_experiment

    given = settings or []
    if file is not None or preset is not None or given:
        experiments = [load_experiment(file, preset, given)]
    else:
        experiments = [load_experiment(preset="quick")]
        experiments += [load_experiment(settings=[*SETTINGS, *size]) for size in MODELS.values()]
    present(measure_numerics(experiments, data, repeats, show_progress), as_json)


@bench_app.command("precision", epilog="Example: refprotofl bench precision --repeats 9")
def bench_precision(repeats: Repeats = 7, as_json: AsJson = False) -> None:
    """Measure train.precision = "bf16" and model.layout = "auto" relative to float32 as the layers come, natively."""
    from refprotofl.bench.precision import measure_precision

    present(measure_precision(repeats=repeats, show_progress=show_progress), as_json)


@bench_app.command("start", epilog="Example: refprotofl bench start --repeats 5")
def bench_start(repeats: Repeats = 5, as_json: AsJson = False) -> None:
    """Measure the time to the help text and to the first round, with lower bounds for both."""
    from refprotofl.bench.start import measure_start

    present(measure_start(repeats, show_progress), as_json)


def _counts(option: str, text: str) -> list[int]:
    counts = [read_whole(part.strip()) or 0 for part in text.split(",")]
    if not all(counts):
        raise InputError(f"{option} {text}: expected whole numbers of at least 1.")
    return counts
