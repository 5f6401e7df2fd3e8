"""The command `compare`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from refprotofl.cli.app import (
    DataDir,
    Device,
    Preset,
    Settings,
    Workers,
    app,
    limit_kernels,
    nothing_kept_yet,
    read_path,
    read_seeds,
    read_workers,
)
from refprotofl.cli.next_command import show_next
from refprotofl.cli.output import Column, emit, explain, notes, out, say, show, warn
from refprotofl.cli.report import report_finished
from refprotofl.cli.study import (
    Margin,
    Methods,
    NoRuns,
    Results,
    Seeds,
    StudyFolder,
    planning,
    read_base,
    read_margin,
    show_table,
)
from refprotofl.core import InputError, counted, for_terminal

if TYPE_CHECKING:
    from refprotofl.report import OverSeeds
    from refprotofl.studies import KeptResults, Planner
    from refprotofl.studies.compare import Comparison, Request
    from refprotofl.studies.compare import Tuned as TunedSettings


class CompareFormat(StrEnum):
    table = "table"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    csv_long = "csv-long"
    json = "json"


Columns = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Only these comma-separated columns of table, markdown or latex, such as headline,difference,total: a "
        "table that fits a paper's column.",
        show_default=False,
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Argument(help="Experiments as TOML.", parser=read_path, metavar="[FILE]...", show_default=False),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The baseline, a row of --methods: the others are compared with it, paired by seed. Or none.",
        show_default="the first of --methods",
    ),
]
Tuned = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[EXPERIMENT=]FILE",
        help="Settings that tune chose, for all experiments or for the one in EXPERIMENT.toml; repeatable.",
        show_default=False,
    ),
]
Leading = Annotated[
    str,
    typer.Option(
        "--protocol",
        help="The accuracy that the table leads with.",
        show_default="global if all rows have it, else personal",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="[PROTOCOL=]SHARE",
        help="Report rounds, bytes and seconds until an evaluation first reaches this accuracy on samples that clients "
        "hold out, such as 0.8 (personal) or own=0.8.",
        show_default=False,
    ),
]
Last = Annotated[int, typer.Option(min=2, metavar="K", help="Number of final evaluations that are averaged.")]
TableFormat = Annotated[
    CompareFormat,
    typer.Option(
        "--format",
        help="Output format; json also has the values by seed and the run folders, csv-long a row for each seed and "
        "protocol.",
    ),
]
EpsilonFigure = Annotated[
    Path | None,
    typer.Option(parser=read_path, metavar="FILE", help="Draw accuracy by epsilon, if rows have keys of \\[privacy]."),
]


@app.command(epilog="Example: refprotofl compare --methods refprotofl,fedavg,local --seeds 0,1,2 --preset small")
def compare(
    methods: Methods,
    files: Files = None,
    preset: Preset = None,
    settings: Settings = None,
    seeds: Seeds = "0,1,2",
    tuned: Tuned = None,
    against: Against = None,
    margin: Margin = None,
    protocol: Leading = "",
    target: Target = None,
    last: Last = 3,
    out_dir: StudyFolder = Path("runs/compare"),
    results: Results = None,
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    no_runs: NoRuns = False,
    table_format: TableFormat = CompareFormat.table,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    columns: Columns = None,
    epsilon_figure: EpsilonFigure = None,
) -> None:
    """Run several methods on the same partitions, initial weights and cohorts, and print them side by side.

    With several experiments, each has a table of its own, and its runs are in a folder of its name below --out.
    """
    shown = CompareFormat.json if as_json else table_format
    _check_files(files or [], shown)
    picked = _read_columns(columns, shown)
    with nothing_kept_yet():
        from refprotofl.studies import CELLS, KeptResults, find_cells
        from refprotofl.studies.compare import read_tuned_files

        stems = [file.stem for file in files or []] or ["comparison"]
        chosen = read_tuned_files(tuned or [], stems)
        kept = KeptResults(out_dir / CELLS, tuple(file for folder in results or () for file in find_cells(folder)))
    named: list[Path | None] = [*files] if files else [None]
    for file, stem in zip(named, stems, strict=True):
        asked = _Asked(methods, preset, settings, seeds, against, margin, protocol, target, last, workers, device)
        place = _Place(stem, out_dir, out_dir / stem if len(named) > 1 else out_dir, data, kept, no_runs)
        _compare(file, place, asked, chosen[stem], shown, picked, epsilon_figure)


@dataclass(frozen=True)
class _Asked:
    """The options that all experiments of a comparison share, as they are typed."""

    methods: str
    preset: str | None
    settings: list[str] | None
    seeds: str
    against: str | None
    margin: str | None
    protocol: str
    target: str | None
    last: int
    workers: str
    device: str | None


@dataclass(frozen=True)
class _Place:
    """The folders of an experiment's runs and table, and the results that count as finished runs."""

    name: str  # of the table
    study: Path
    runs: Path
    data: Path | None
    kept: "KeptResults"
    no_runs: bool


def _check_files(files: Sequence[Path], shown: CompareFormat) -> None:
    """Refuse several experiments that would share a folder, or a format of one value."""
    stems = [file.stem for file in files]
    if repeated := next((stem for stem in stems if stems.count(stem) > 1), None):
        raise InputError(f"Two experiments are called {repeated}, and their runs would be in one folder: rename one.")
    if len(files) > 1 and shown in (CompareFormat.json, CompareFormat.csv, CompareFormat.csv_long):
        raise InputError(f"--format {shown.value} is for one experiment, not {len(files)}: compare them one by one.")


def _read_columns(columns: str | None, shown: CompareFormat) -> tuple[str, ...]:
    if columns is not None and shown in (CompareFormat.csv, CompareFormat.csv_long, CompareFormat.json):
        raise InputError(f"--columns is for table, markdown and latex; --format {shown.value} has all columns.")
    return tuple(one.strip() for one in (columns or "").split(",") if one.strip())


def _compare(
    file: Path | None,
    place: _Place,
    asked: _Asked,
    tuned: "TunedSettings",
    shown: CompareFormat,
    columns: tuple[str, ...],
    epsilon_figure: Path | None,
) -> None:
    with nothing_kept_yet():
        limit_kernels(file, asked.settings)
        count = read_workers(asked.workers)
        request = _request(file, place.runs, asked, tuned)
    if shared := sorted({*request.seeds} & {*tuned.seeds}):
        warn(
            f"{place.name}: its settings were chosen with seeds that results are asked for, too: "
            f"{', '.join(map(str, shared))}. Such results are too good; report others."
        )
    with planning(place.runs, place.data, count, place.kept, len(request.trials())) as planner:
        comparison = _results(planner, request, place)
    if planner.reused:
        say(f"Reused {len(planner.reused)} of {len(planner.planned)} runs, which were finished before", notes)
    if not comparison.rows:
        return
    over = counted(len(request.seeds), "seed")
    dataset = request.trials()[0].experiment.dataset
    title = f"{dataset}: mean over {over}" + ("" if over == "1 seed" else ", 95 % interval")
    if epsilon_figure is not None:
        _draw_epsilons(comparison.rows, epsilon_figure, title)
    _print(comparison.rows, title, shown, columns, place)
    report = place.runs / "report.html"
    report_finished(
        list(comparison.runs), report, against=request.baseline, names=comparison.runs, title=title,
        protocol=request.protocol or None,
    )  # fmt: skip
    first = next(iter(comparison.runs))
    if shown is CompareFormat.table and first.is_dir():
        show_next(["refprotofl", "report", str(first)])


def _request(file: Path | None, runs: Path, asked: _Asked, tuned: "TunedSettings") -> "Request":
    from refprotofl.evaluation import check_protocol
    from refprotofl.studies import compare as study
    from refprotofl.studies import read_row, split_list

    if asked.protocol:
        check_protocol(asked.protocol)
    rows = tuple(map(read_row, split_list(asked.methods)))
    request = study.Request(
        base=read_base(file, asked.preset, asked.settings, asked.device),
        rows=rows,
        seeds=tuple(read_seeds(asked.seeds)),
        baseline=study.read_baseline(asked.against, rows),
        last=asked.last,
        runs=runs,
        margin=read_margin(asked.margin),
        target=study.read_target(asked.target),
        protocol=asked.protocol,
        tuned=tuned,
    )
    study.check(request)
    return request


def _results(planner: "Planner", request: "Request", place: _Place) -> "Comparison":
    """Return the comparison of all runs, or with --no-runs of the finished ones; kept results have an address."""
    from refprotofl.studies.compare import Comparison, compare, comparison

    if place.no_runs:
        trials = request.trials()
        found = planner.finished_results(trials)
        done = [(trial, found[trial.hash]) for trial in trials if trial.hash in found]
        missing = dict.fromkeys(f"{one.name}, seed {one.experiment.seed}" for one in trials if one.hash not in found)
        if missing:
            warn(f"{place.name}: {counted(len(missing), 'run')} missing: {for_terminal('; '.join(missing))}")
        compared = comparison(request, done) if done else Comparison([], {})
    else:
        compared = planner.conduct(compare(request), stop_at_failure=True)
    trials_by_folder = {trial.folder: trial for trial in request.trials()}
    runs = {
        (folder if folder.exists() else place.kept.address(trials_by_folder[folder]) or folder): name
        for folder, name in compared.runs.items()
    }
    return replace(compared, runs=runs)


def _draw_epsilons(rows: "list[OverSeeds]", file: Path, title: str) -> None:
    from refprotofl.report import draw_epsilons, headline

    say(for_terminal(draw_epsilons(rows, file, headline(rows), title)), notes)


def _print(
    rows: "list[OverSeeds]", title: str, table_format: CompareFormat, columns: tuple[str, ...], place: _Place
) -> None:
    """Write the table in all formats, and print it in one."""
    from refprotofl.report import write_table
    from refprotofl.report.formats import FORMATS, comparison_table, picked_table

    write_table(place.study / "tables", comparison_table(rows, title, place.name))
    if table_format is CompareFormat.table:
        if columns:
            table = picked_table(rows, title, columns)
            show_table(table, table.notes)
        else:
            show_comparison(rows, title)
        runs = "" if place.no_runs else f"Runs are in {for_terminal(place.runs)}. "
        say(f"{runs}The table is in {for_terminal(place.study / 'tables')}, as Markdown, LaTeX, CSV and JSON")
    else:
        emit(FORMATS[table_format](rows, title, columns))


def show_comparison(rows: "list[OverSeeds]", title: str, console: Console = out) -> None:
    from refprotofl.report import accuracies, efforts, footnotes, metric_values
    from refprotofl.report.formats import legend, targets

    names, wraps = [Column("method", wraps=24)], {"shares": 9, "difference": 16, "verdict": 12}
    for shown, (headings, lines) in (
        (title, accuracies(rows)),
        ("Metrics", metric_values(rows)),
        ("What it took", efforts(rows)),
        ("What it took to the target, on samples that clients hold out", targets(rows)),
    ):
        if not headings:
            continue
        columns = names + [Column(heading, heading != "shares", wraps.get(heading, 0)) for heading in headings]
        show(columns, [[row.name, *line] for row, line in zip(rows, lines, strict=True)], shown, console=console)
    for note in (*legend(rows), *footnotes(rows)):
        explain(for_terminal(note), console)
