"""Measurements of whole runs: `bench overhead`, `bench workers`, `bench scale`, `bench start`, `bench numerics`."""

from pathlib import Path
from typing import Annotated

import typer

from refprotofl.cli.app import DataDir, File, Preset, Settings, limit_kernels, read_path
from refprotofl.cli.bench import AsJson, Repeats, bench_app, present, tell
from refprotofl.cli.output import say
from refprotofl.core.errors import InputError
from refprotofl.core.units import counted, read_whole

Rounds = Annotated[int, typer.Option(min=1, help="Rounds of a run.")]


@bench_app.command("overhead", epilog="Example: refprotofl bench overhead --set model.name=cnn --repeats 5")
def bench_overhead(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
    repeats: Repeats = 9,
    watched: Annotated[bool, typer.Option("--watched", help="Also while somebody looks on at the live page.")] = False,
    as_json: AsJson = False,
) -> None:
    """CPU time of a run over a bare PyTorch loop with the same model, samples and steps.

    Unless something else is named: the CNN and ResNet-18 on images of 28 x 28 made on the spot.
    """
    limit_kernels(file, settings)
    from refprotofl.bench.overhead import MODELS, SETTINGS, measure_overheads
    from refprotofl.experiment.presets import load_experiment

    given = settings or []
    choices = [given]
    if file is None and preset is None:
        named = [
            value.strip() for key, _, value in (one.partition("=") for one in given) if key.strip() == "model.name"
        ]
        sizes = [MODELS.get(named[-1], MODELS["cnn"])] if named else list(MODELS.values())
        choices = [[*SETTINGS, *size, *given] for size in sizes]
    experiments = [load_experiment(file, preset, choice) for choice in choices]
    present(measure_overheads(experiments, data, repeats, tell, watched), as_json)


@bench_app.command("workers", epilog="Example: refprotofl bench workers --workers 4")
def bench_workers(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
    workers: Annotated[int, typer.Option(min=2, help="Processes that clients run in.")] = 2,
    rounds: Rounds = 10,
    repeats: Repeats = 3,
    as_json: AsJson = False,
) -> None:
    """Time per round with worker processes over that with one process; the results are compared, too.

    Unless something else is named: the CNN, 10 clients at Dirichlet 0.5, images of 28 x 28 made on the spot.
    """
    limit_kernels(file, settings)
    from refprotofl.bench.parallel import SETTINGS, measure_workers
    from refprotofl.experiment.presets import load_experiment

    base = SETTINGS if file is None and preset is None else ()
    experiment = load_experiment(file, preset, [*base, *(settings or ()), f"rounds={rounds}"])
    present(measure_workers(experiment, data, workers, repeats, tell), as_json)


@bench_app.command(
    "scale", epilog="Example: refprotofl bench scale --model resnet18 --clients 25,50,100,200 --in-a-round all"
)
def bench_scale(
    model: Annotated[str, typer.Option(help="mlp, cnn, resnet18 or module:function.")] = "mlp",
    clients: Annotated[str, typer.Option(help="Numbers of clients, by commas.")] = "100,300,1000,3000,10000",
    in_a_round: Annotated[str, typer.Option(help="How many of them take part in a round, or all.")] = "100",
    samples: Annotated[int, typer.Option(min=1, help="Samples of each client.")] = 10,
    rounds: Rounds = 4,
    quick: Annotated[bool, typer.Option("--quick", help="10, 30 and 100 clients, 10 in a round, 2 rounds.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option("--out", parser=read_path, metavar="FILE", help="Draw it to this .png, .pdf or .svg."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time per round and memory against the number of clients, each point in a process of its own."""
    from refprotofl.bench.scale import draw_scale, measure_scale, points
    from refprotofl.report.pictures.style import check_suffix

    if quick:
        clients, in_a_round, rounds = "10,30,100", "10", 2
    if picture is not None:
        check_suffix(picture)
    counts = _counts("--clients", clients)
    taking_part = None if in_a_round == "all" else _counts("--in-a-round", in_a_round)[0]
    report = measure_scale(points(model, counts, taking_part, samples, rounds), tell)
    present(report, as_json)
    if picture is not None:
        title = f"{model}, {counted(samples, 'sample')} each, {in_a_round} in a round"
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
    """CPU time of a run with numerics = "portable" over "native", and with MKL_CBWR=COMPATIBLE in addition.

    Unless something else is named: the MLP on digits, the CNN and ResNet-18 on images of 28 x 28 made on the spot.
    """
    from refprotofl.bench.numerics import measure_numerics
    from refprotofl.bench.overhead import MODELS, SETTINGS
    from refprotofl.experiment.presets import load_experiment

    given = settings or []
    if file is not None or preset is not None or given:
        experiments = [load_experiment(file, preset, given)]
    else:
        experiments = [load_experiment(preset="quick")]
        experiments += [load_experiment(settings=[*SETTINGS, *size]) for size in MODELS.values()]
    present(measure_numerics(experiments, data, repeats, tell), as_json)


@bench_app.command("start", epilog="Example: refprotofl bench start --repeats 5")
def bench_start(repeats: Repeats = 5, as_json: AsJson = False) -> None:
    """How soon the help text and the first round are there, beside what they cannot beat."""
    from refprotofl.bench.start import measure_start

    present(measure_start(repeats, tell), as_json)


def _counts(option: str, text: str) -> list[int]:
    counts = [read_whole(part.strip()) or 0 for part in text.split(",")]
    if not all(counts):
        raise InputError(f"{option} {text}: whole numbers of at least 1 are allowed.")
    return counts
