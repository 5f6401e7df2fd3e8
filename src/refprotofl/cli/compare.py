"""The command `compare`."""

from collections.abc import Sequence
from dataclasses import dataclass
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
from refprotofl.cli.output import Column, emit, explain, notes, out, say, show
from refprotofl.cli.report import report_finished
from refprotofl.cli.study import Format, Margin, Methods, Seeds, StudyFolder, planning, read_base, read_margin
from refprotofl.core import InputError, counted, for_terminal

if TYPE_CHECKING:
    from refprotofl.report import OverSeeds

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
    Format, typer.Option("--format", help="Output format; json also has the values by seed and the run folders.")
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
    against: Against = None,
    margin: Margin = None,
    target: Target = None,
    last: Last = 3,
    out_dir: StudyFolder = Path("runs/compare"),
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    table_format: TableFormat = Format.table,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    epsilon_figure: EpsilonFigure = None,
) -> None:
    """Run several methods on the same partitions, initial weights and cohorts, and print them side by side.

    With several experiments, each has a table of its own, and its runs are in a folder of its name below --out.
    """
    shown = Format.json if as_json else table_format
    _check_files(files or [], shown)
    named: list[Path | None] = [*files] if files else [None]
    for file in named:
        folder = out_dir if file is None or len(named) == 1 else out_dir / file.stem
        asked = _Asked(methods, preset, settings, seeds, against, margin, target, last, data, workers, device)
        _compare(file, folder, asked, shown, epsilon_figure)


@dataclass(frozen=True)
class _Asked:
    """The options that all experiments of a comparison share, as they are typed."""

    methods: str
    preset: str | None
    settings: list[str] | None
    seeds: str
    against: str | None
    margin: str | None
    target: str | None
    last: int
    data: Path | None
    workers: str
    device: str | None


def _check_files(files: Sequence[Path], shown: Format) -> None:
    """Refuse several experiments that would share a folder, or a format of one value."""
    stems = [file.stem for file in files]
    if repeated := next((stem for stem in stems if stems.count(stem) > 1), None):
        raise InputError(f"Two experiments are called {repeated}, and their runs would be in one folder: rename one.")
    if len(files) > 1 and shown in (Format.json, Format.csv):
        raise InputError(f"--format {shown.value} is for one experiment, not {len(files)}: compare them one by one.")


def _compare(file: Path | None, out_dir: Path, asked: _Asked, shown: Format, epsilon_figure: Path | None) -> None:
    with nothing_kept_yet():
        limit_kernels(file, asked.settings)
        count = read_workers(asked.workers)
        from refprotofl.studies import compare as study
        from refprotofl.studies import read_row, split_list

        rows = tuple(map(read_row, split_list(asked.methods)))
        request = study.Request(
            base=read_base(file, asked.preset, asked.settings, asked.device),
            rows=rows,
            seeds=tuple(read_seeds(asked.seeds)),
            baseline=study.read_baseline(asked.against, rows),
            last=asked.last,
            runs=out_dir,
            margin=read_margin(asked.margin),
            target=study.read_target(asked.target),
        )
        study.check(request)
    with planning(out_dir, asked.data, count, runs=len(request.trials())) as planner:
        comparison = planner.conduct(study.compare(request), stop_at_failure=True)
    if planner.reused:
        say(f"Reused {len(planner.reused)} of {len(planner.planned)} runs, which were finished before", notes)
    over = counted(len(request.seeds), "seed")
    dataset = request.trials()[0].experiment.dataset
    title = f"{dataset}: mean over {over}" + ("" if over == "1 seed" else ", 95 % interval")
    if epsilon_figure is not None:
        _draw_epsilons(comparison.rows, epsilon_figure, title)
    _print(comparison.rows, title, shown, out_dir)
    report_finished(
        list(comparison.runs), out_dir / "report.html", against=request.baseline, names=comparison.runs, title=title
    )
    if shown is Format.table:
        show_next(["refprotofl", "report", str(next(iter(comparison.runs)))])


def _draw_epsilons(rows: "list[OverSeeds]", file: Path, title: str) -> None:
    from refprotofl.report import draw_epsilons, headline

    say(for_terminal(draw_epsilons(rows, file, headline(rows), title)), notes)


def _print(rows: "list[OverSeeds]", title: str, table_format: Format, out_dir: Path) -> None:
    from refprotofl.report.formats import FORMATS

    if table_format is Format.table:
        show_comparison(rows, title)
        say(f"Runs are in {for_terminal(out_dir)}")
    else:
        emit(FORMATS[table_format](rows, title))


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
