"""Commands that set methods side by side: `compare` and `methods`.

What `refprotofl methods NAME` tells of one method.
"""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from refprotofl.cli.app import (
    DataDir,
    Device,
    File,
    Preset,
    Settings,
    Workers,
    app,
    limit_kernels,
    nothing_kept_yet,
    read_path,
    read_seeds,
)
from refprotofl.cli.grids import run_grid
from refprotofl.cli.output import Column, emit, explain, notes, out, say, show
from refprotofl.cli.report import report_beside
from refprotofl.cli.run import read_workers, with_device
from refprotofl.core.errors import InputError
from refprotofl.core.escaping import for_terminal
from refprotofl.core.units import counted
from refprotofl.experiment import Experiment
from refprotofl.experiment.keys import allowed, keys
from refprotofl.methods.catalogue import METHODS, find_method
from refprotofl.methods.declaration import Method
from refprotofl.privacy.interface import setting

if TYPE_CHECKING:
    from refprotofl.report.comparison import OverSeeds
    from refprotofl.studies.runner import Done


class Format(StrEnum):
    table = "table"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


@app.command(
    epilog="Example: refprotofl compare --methods refprotofl,fedavg:share=full,local --seeds 0,1,2 --preset small"
)
def compare(
    methods: Annotated[
        str,
        typer.Option(
            help="Methods with commas between; fedavg:share=full adds a switch, as do more colons (without it fedavg "
            "shares the adapter). One of your own is module:Class, its options follow: module:Class:own.beta=0.5. "
            "A row may have a name: 'whole = fedavg:share=full'."
        ),
    ],
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    seeds: Annotated[str, typer.Option(help="Seeds with commas between.")] = "0,1,2",
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The baseline, named as in --methods: the others are set against it, paired by seed. Or none.",
            show_default="the first of --methods",
        ),
    ] = None,
    last: Annotated[int, typer.Option(min=2, metavar="K", help="How many of the last evaluations are averaged.")] = 3,
    out_dir: Annotated[
        Path,
        typer.Option("--out", parser=read_path, metavar="DIR", help="Where the runs lie; finished ones are reused."),
    ] = Path("runs/compare"),
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    table_format: Annotated[
        Format,
        typer.Option("--format", help="How it is printed; json also has the values by seed and the run folders."),
    ] = Format.table,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    epsilon_figure: Annotated[
        Path | None,
        typer.Option(parser=read_path, metavar="FILE", help="Draw accuracy by epsilon, where rows have [privacy]."),
    ] = None,
) -> None:
    """Run several methods on the same partitions, initial weights and cohorts, and print them side by side."""
    with nothing_kept_yet():
        limit_kernels(file, settings)
        count = read_workers(workers)
        from refprotofl.report.comparable import check_comparable, check_settings
        from refprotofl.report.comparison import against as set_against
        from refprotofl.report.comparison import tabulate
        from refprotofl.report.formats import FORMATS
        from refprotofl.studies.cells import plan, read_name, split_list

        chosen, asked = with_device(settings or [], device), split_list(methods)
        cells = plan(file, preset, chosen, asked, read_seeds(seeds), out_dir)
        baseline, switched = _read_baseline(against, [read_name(one)[0] for one in asked]), _switched(asked)
        check_settings([cell.experiment.plain() for cell in cells], switched)
    done = run_grid(cells, data, count, out_dir)
    _tell_reused(done)
    check_comparable([result for _, result in done], switched)
    rows = tabulate(done, last)
    if baseline is not None:
        rows = set_against(rows, baseline)
    over = counted(len(read_seeds(seeds)), "seed")
    title = f"{cells[0].experiment.dataset}: mean over {over}" + ("" if over == "1 seed" else ", 95 % interval")
    if epsilon_figure is not None:
        from refprotofl.report.comparison import headline
        from refprotofl.report.pictures.accuracy import draw_epsilons

        say(for_terminal(draw_epsilons(rows, epsilon_figure, headline(rows), title)), notes)
    chosen_format = Format.json if as_json else table_format
    if chosen_format is not Format.table:
        emit(FORMATS[chosen_format](rows, title))
    else:
        show_comparison(rows, title)
        say(f"Runs are in {for_terminal(out_dir)}")
    names_of = {cell.folder: cell.name for cell, _ in done}
    report_beside(list(names_of), out_dir / "report.html", against=baseline, names=names_of, title=title)


def _tell_reused(done: "list[Done]") -> None:
    reused = sum(cell.reused for cell, _ in done)
    if reused:
        say(f"{reused} of {len(done)} runs are reused: they were finished before", notes)


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
    from refprotofl.methods.catalogue import find_method

    for line in lines(find_method(name)):
        say(for_terminal(line))
    rows = key_rows(name)
    if rows:
        show((Column("key"), Column("default", wraps=12), Column("takes", wraps=24)), rows, framed=False)


def _list(file: Path | None, preset: str | None, settings: list[str], data: Path | None) -> None:
    from refprotofl.experiment.presets import load_experiment
    from refprotofl.report.costs import cost_rows

    rows = cost_rows(load_experiment(file, preset, settings), data)
    sent = (Column("values up", wraps=20), Column("values down", wraps=20))
    columns = (Column("method"), Column("what it does", wraps=30), Column("shares", wraps=23), *sent)
    lines = [
        (row.name, row.line, row.share, _equation(row.formula.up, row.up), _equation(row.formula.down, row.down))
        for row in rows
    ]
    show(columns, lines, "Values a client and round, as a formula and for this model")
    explain(
        "P shared parameters, K parameters kept, m embedding width, C classes, N clients, D public images; "
        "a client is taken to hold every class. Compressors, one-off messages and evaluation come on top."
    )
    for row in rows:
        for note in row.notes:
            explain(f"{row.name}: {note}")


def _equation(formula: str, value: int) -> str:
    return formula if formula == str(value) else f"{formula} = {value:,}"


def _read_baseline(typed: str | None, names: list[str]) -> str | None:
    """The row that the others are set against, if any."""
    if typed is None:
        return names[0]
    if typed.strip() == "none":
        return None
    if typed.strip() not in names:
        raise InputError(f"--against {typed}: allowed are none and what is compared: {', '.join(names)}.")
    return typed.strip()


def _switched(asked: list[str]) -> set[str]:
    """The dotted keys that rows switch."""
    from refprotofl.studies.cells import key_of, read_name, read_switches

    return {key_of(switch) for one in asked for switch in read_switches(read_name(one)[1])[1]}


def show_comparison(rows: "list[OverSeeds]", title: str, console: Console = out) -> None:
    from refprotofl.report.formats import accuracies, efforts, footnotes, legend, metric_values

    names, wraps = [Column("method", wraps=24)], {"shares": 9, "difference": 16}
    for shown, (headings, lines) in (
        (title, accuracies(rows)),
        ("Metrics", metric_values(rows)),
        ("What it took", efforts(rows)),
    ):
        if not headings:
            continue
        columns = names + [Column(heading, heading != "shares", wraps.get(heading, 0)) for heading in headings]
        show(columns, [[row.name, *line] for row, line in zip(rows, lines, strict=True)], shown, console=console)
    for note in (*legend(rows), *footnotes(rows)):
        explain(for_terminal(note), console)


def lines(method: Method) -> list[str]:
    """What it is, shares and sends."""
    experiment = Experiment.model_construct(**{**dict(Experiment()), "method": method.name})
    cost, shared = method.cost(experiment), ", ".join(method.shared(experiment)) or "nothing"
    return [
        f"{method.name}: {method.line}",
        f"shared: {shared}; values a client and round: {cost.up} up, {cost.down} down",
        *(_private(unit, said) for unit, said in vars(method.releases(experiment)).items()),
        *(f"note: {note}" for note in method.notes),
        *([f"more: {method.page}"] if method.page else []),
    ]


def _private(unit: str, said: int | str) -> str:
    return f"{setting(unit)}: " + (f"not defined, as {said}" if isinstance(said, str) else "yes")


def key_rows(name: str) -> list[tuple[str, str, str]]:
    """Its own keys with their defaults and what they take."""
    method = find_method(name)
    prefix = name if name in METHODS else "own"
    if method.table is None:
        return [(f"{prefix}.{key}", _shown(default), "") for key, default in method.defaults.items()]
    return [
        (f"{prefix}.{key}", _shown(field.get_default(call_default_factory=True)), allowed(field))
        for key, field in keys(method.table).items()
    ]


def _shown(default: object) -> str:
    if default is None:
        return "-"
    return ("on" if default else "off") if isinstance(default, bool) else str(default)
