"""The group `bench`, how all of its commands print, and `bench wire`."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.cli.app import DataDir, File, Preset, Settings, app, limit_kernels
from refprotofl.cli.output import Column, emit, explain, notes, show

if TYPE_CHECKING:
    from torch import Tensor

    from refprotofl.bench.measuring import Report

Repeats = Annotated[int, typer.Option(min=1, help="Passes that the medians are of, after one to warm up.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

bench_app = typer.Typer(
    no_args_is_help=True,
    help="Measurements that you can repeat on your machine.",
    epilog="Example: refprotofl bench wire",
)
app.add_typer(bench_app, name="bench")


@bench_app.callback()
def bench() -> None:
    """Measurements that you can repeat on your machine."""


def tell(progress: str) -> None:
    notes.print(progress, style="dim")


def present(report: "Report", as_json: bool, **more: "Report") -> None:
    """A table with the machine under it, or all of it as JSON; more tables beneath, or their rows by name."""
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
    rounds: Annotated[int, typer.Option(min=1, help="Rounds trained before the real masks are taken.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Bytes of the mask code beside the entropy bound, on uniform masks and on those of a real run.

    And the bits a value that real uploads take with value-code = "entropy", beside their entropy.
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
    from refprotofl.experiment.presets import load_experiment

    experiment = load_experiment(file, preset, settings or ())
    rows = [asdict(row) for row in code_table(uniform_masks() | masks_of_run(experiment, data, rounds))]
    sent: dict[str, Tensor] = {}
    for name, switches in VALUE_VARIANTS.items():
        asked = load_experiment(file, preset, [*(settings or ()), f"rounds={rounds}", *switches])
        sent |= {f"{name}: {field}": one for field, one in values_of_run(asked, data).items()}
    values = Report("Values: bits against their entropy", [asdict(row) for row in value_table(sent)])
    present(Report("Index code: bytes against log2 C(d, K) / 8", rows), as_json, values=values)
