"""Commands that set methods side by side: `compare` and `methods`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from refprotofl.basics.units import percent, size
from refprotofl.cli.app import DataDir, Device, File, Preset, Settings, Workers, app, notes, out, show
from refprotofl.cli.running import read_workers, with_device
from refprotofl.errors import InputError
from refprotofl.evaluation.protocols import PROTOCOLS

if TYPE_CHECKING:
    from refprotofl.report.comparison import OverSeeds
    from refprotofl.report.statistics import Estimate


@app.command(
    epilog="Example: refprotofl compare --methods refprotofl,fedavg:share=full,local --seeds 0,1,2 --preset small"
)
def compare(
    methods: Annotated[
        str, typer.Option(help="Methods with commas between; fedavg:share=full adds a switch, as do more colons.")
    ],
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    seeds: Annotated[str, typer.Option(help="Seeds with commas between.")] = "0,1,2",
    out_dir: Annotated[Path, typer.Option("--out", help="Where the runs lie; finished ones are reused.")] = Path(
        "runs/compare"
    ),
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Run several methods on the same partitions, initial weights and cohorts, and print them side by side."""
    count = read_workers(workers)
    from refprotofl.cli.display import GridWatcher
    from refprotofl.report.choices import split_methods
    from refprotofl.report.comparison import plan, run_cells, tabulate

    chosen = with_device(settings or [], device)
    cells = plan(file, preset, chosen, split_methods(methods), _read_seeds(seeds), out_dir)
    watcher = GridWatcher(notes, [cell.experiment.rounds for cell in cells])
    try:
        results = list(
            run_cells(cells, data, count, lambda number, cell: watcher.cell(number, cell.name, cell.experiment))
        )
    finally:
        watcher.close()
    reused = sum(cell.reused for cell, _ in results)
    if reused:
        notes.print(f"{reused} of {len(results)} runs are reused: they were finished before", highlight=False)
    rows = tabulate(results)
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        show(
            comparison_table(
                rows, f"{cells[0].experiment.dataset}: mean over {len(_read_seeds(seeds))} seeds, 95 % interval"
            )
        )
        out.print(f"Runs are in {out_dir}", soft_wrap=True)


@app.command(epilog="Example: refprotofl methods --preset paper --set share=full, or refprotofl methods fedprox")
def methods(
    name: Annotated[
        str | None, typer.Argument(help="A method to tell more of; or an experiment as TOML.", show_default=False)
    ] = None,
    preset: Preset = None,
    settings: Settings = None,
    data: DataDir = None,
) -> None:
    """List all methods: what each shares, and how many values a client sends and gets in a round.

    Of one method: its own keys, with what they take, and its notes.
    """
    file = Path(name) if name is not None and name.endswith(".toml") else None
    if name is not None and file is None:
        _tell_of(name)
    else:
        _list(file, preset, settings or [], data)


def _tell_of(name: str) -> None:
    from refprotofl.cli.method_help import key_table, lines
    from refprotofl.methods.catalogue import find_method

    for line in lines(find_method(name)):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    table = key_table(name)
    if table is not None:
        out.print(table)


def _list(file: Path | None, preset: str | None, settings: list[str], data: Path | None) -> None:
    from refprotofl.experiment.presets import load_experiment
    from refprotofl.report.comparison import cost_rows

    table = Table(title="Values a client and round, as a formula and for this model", title_justify="left")
    for heading in ("method", "what it does", "shared", "up", "", "down", ""):
        table.add_column(heading, justify="left" if heading else "right")
    for row in cost_rows(load_experiment(file, preset, settings), data):
        numbers = (row.formula.up, f"{row.up:,}", row.formula.down, f"{row.down:,}")
        table.add_row(row.name, row.line, ", ".join(row.shared) or "-", *numbers)
    show(table)
    out.print(
        "P shared parameters, K parameters kept, m embedding width, C classes, N clients, D public images; "
        "a client is taken to hold every class. Compressors, one-off messages and evaluation come on top.",
        soft_wrap=True,
    )


def _read_seeds(text: str) -> list[int]:
    seeds = [seed.strip() for seed in text.split(",") if seed.strip()]
    if not seeds or not all(seed.isdecimal() for seed in seeds):
        raise InputError(f"--seeds {text}: allowed are whole numbers with commas between, such as 0,1,2.")
    return [int(seed) for seed in seeds]


def comparison_table(rows: "list[OverSeeds]", title: str) -> Table:
    table = Table(title=title, title_justify="left")
    shown = [protocol for protocol in PROTOCOLS if any(protocol in row.accuracy for row in rows)]
    for heading in ("method", *shown, "uplink", "downlink", "seconds"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for row in rows:
        cells = [_share(row.accuracy.get(protocol)) for protocol in shown]
        table.add_row(
            row.name, *cells, size(row.uplink_bytes.mean), size(row.downlink_bytes.mean), f"{row.seconds.mean:.0f}"
        )
    return table


def _share(value: "Estimate | None") -> str:
    if value is None:
        return "-"
    spread = "" if value.half_width is None else f" ± {100 * value.half_width:.2f}"
    return f"{percent(value.mean)}{spread}"
