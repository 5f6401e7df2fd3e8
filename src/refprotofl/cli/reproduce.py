"""The command `reproduce`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.cli.app import (
    DataDir,
    Device,
    Settings,
    Workers,
    app,
    limit_kernels,
    nothing_kept_yet,
    read_seeds,
    read_workers,
    with_device,
)
from refprotofl.cli.output import notes, say, warn
from refprotofl.cli.report import report_finished
from refprotofl.cli.study import (
    Margin,
    NoRuns,
    Results,
    Seeds,
    StudyFolder,
    planning,
    read_margin,
    show_table,
    warn_failed,
)
from refprotofl.core import RunError, counted, duration, for_terminal

if TYPE_CHECKING:
    from refprotofl.studies import KeptResults, Planner, Result, Trial
    from refprotofl.studies.reproduce.studies import Grid, Scope


class TableName(StrEnum):
    accuracy = "accuracy"
    ablation = "ablation"
    communication = "communication"
    sweeps = "sweeps"
    compressors = "compressors"
    curves = "curves"
    partition_figure = "partition-figure"
    tsne_figure = "tsne-figure"
    thin = "thin"
    headline = "headline"
    thin_ablation = "thin-ablation"
    plus = "plus"
    all = "all"


class Variants(StrEnum):
    standard = "standard"
    reconstruction = "reconstruction"
    both = "both"


class Sizes(StrEnum):
    quick = "quick"
    small = "small"
    full = "full"
    paper = "paper"


Table = Annotated[TableName, typer.Argument(help="The table or figure.", show_default=False)]
Size = Annotated[Sizes, typer.Option("--preset", help="paper is the paper's setting; the others are smaller.")]
Datasets = Annotated[
    str | None,
    typer.Option(help="Comma-separated data sets; the paper's four, or digits with quick.", show_default=False),
]
Alphas = Annotated[
    str | None, typer.Option(help="Comma-separated Dirichlet alphas.", show_default="0.5,100, or 0.5 with quick")
]
Only = Annotated[
    str | None,
    typer.Option(help="Only these comma-separated methods; those that the paper lacks are added.", show_default=False),
]
OnlyRows = Annotated[
    list[str] | None,
    typer.Option("--row", metavar="ROW", help="Only this row, as the table names it; repeatable.", show_default=False),
]
VariantName = Annotated[
    Variants,
    typer.Option(
        help="standard: methods that average weights share the whole model; reconstruction: all share the adapter and "
        "are scored before aggregation, as the paper most likely did."
    ),
]
Tuned = Annotated[
    list[str] | None,
    typer.Option(
        help="DATASET=FILE.toml: settings that tune chose, for the standard variant; repeatable.", show_default=False
    ),
]
Against = Annotated[
    str,
    typer.Option(
        metavar="ROW",
        help="The row that the others are compared with, as the table names it.",
        show_default="RefProtoFL",
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        help="The accuracy that rows are compared by, in the standard variant.", show_default="the table's own"
    ),
]
Last = Annotated[int, typer.Option(min=2, help="Number of final evaluations that are averaged.")]


@app.command(epilog="Example: refprotofl reproduce accuracy --preset small --dataset fashion-mnist --alpha 0.5")
def reproduce(
    table: Table,
    preset: Size = Sizes.quick,
    dataset: Datasets = None,
    alpha: Alphas = None,
    methods: Only = None,
    row: OnlyRows = None,
    seeds: Seeds = "0,1,2",
    variant: VariantName = Variants.both,
    tuned: Tuned = None,
    settings: Settings = None,
    against: Against = "",
    margin: Margin = None,
    protocol: Protocol = "",
    last: Last = 3,
    out_dir: StudyFolder = Path("runs/reproduce"),
    results: Results = None,
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    no_runs: NoRuns = False,
) -> None:
    """Run the experiments of the paper's tables and figures, and write these with the paper's numbers next to ours.

    An interrupted study is resumed by the same command, and several terminals may work on the same one.
    """
    with nothing_kept_yet():
        limit_kernels(None, settings)
        from refprotofl.studies import CELLS, KeptResults, find_cells, split_list
        from refprotofl.studies.reproduce import request
        from refprotofl.studies.reproduce.studies import Scope

        datasets = tuple(dict.fromkeys(split_list(dataset))) if dataset else request.default_datasets(preset)
        asked = request.Request(
            table=table,
            preset=preset,
            scope=Scope(datasets, request.alphas_of(preset, alpha), tuple(split_list(methods or "")), tuple(row or ())),
            variants=tuple(one for one in request.VARIANTS if variant in (Variants.both, one)),
            settings=tuple(with_device(settings or [], device)),
            seeds=tuple(dict.fromkeys(read_seeds(seeds))),
            tuned=request.read_tuned_files(tuned or [], datasets),
            out=out_dir,
            against=against.strip(),
            protocol=protocol.strip(),
            margin=read_margin(margin),
        )
        count, grids = read_workers(workers), asked.grids()
        kept = KeptResults(out_dir / CELLS, tuple(file for folder in results or () for file in find_cells(folder)))
    for sentence in request.find_leaks(asked.tuned, asked.seeds):
        warn(for_terminal(sentence))
    with planning(out_dir, data, count, kept=kept) as planner:
        found = _results(planner, grids, data, no_runs)
    warn_failed(planner)
    _say_numerics(found)
    _write(grids, found, last, out_dir)
    _draw(grids, asked.scope, found, last, data, out_dir)
    if found:
        report_finished([out_dir], out_dir / "report.html", data, blocks=_blocks(grids, data, kept))
    if planner.failures:
        raise typer.Exit(RunError.exit_code)


def _results(planner: "Planner", grids: "dict[str, Grid]", data: Path | None, no_runs: bool) -> "dict[str, Result]":
    """Return the results of all grids by hash; runs that are not finished are run, unless `no_runs`."""
    from refprotofl.studies.trials import unique

    trials = unique(trial for grid in grids.values() for trial in grid.cells())
    results = planner.kept_results(trials)
    drawn = {trial.hash for trial in _without_model(grids, data)}  # kept results have no model to draw
    left = [trial for trial in trials if trial.hash not in results or trial.hash in drawn]
    if trials:
        say(f"{counted(len(trials), 'run')}, {len(trials) - len(left)} of them finished before", notes)
    if not left or no_runs:
        return results
    finished = {name: result for name, result in results.items() if name not in drawn}
    seconds = planner.estimate(trials, finished, lambda sentence: say(sentence, notes))
    say(f"The others take {_about(seconds, planner.processes(left))}", notes)
    missing = planner.run([trial for trial in left if trial.hash not in results])
    again = planner.run([trial for trial in left if trial.hash in results], need_folders=True)
    return results | {name: one.result for name, one in (missing.results | again.results).items()}


def _about(seconds: float, processes: int) -> str:
    if processes == 1:
        return f"about {duration(seconds)} in one process of this machine"
    return f"about {duration(seconds / processes)} in {processes} processes of this machine"


def _without_model(grids: "dict[str, Grid]", data: Path | None) -> "list[Trial]":
    """Return the trials whose model is drawn, and which have no finished run folder."""
    from refprotofl.studies.reproduce.figures import finished_runs

    return finished_runs(grids["tsne-figure"], data)[1] if "tsne-figure" in grids else []


def _say_numerics(results: "dict[str, Result]") -> None:
    from refprotofl.studies import count_numerics

    if results:
        say(f"Numerics of the results: {count_numerics(results.values())}", notes)


def _blocks(grids: "dict[str, Grid]", data: Path | None, kept: "KeptResults") -> "list[tuple[str, dict[Path, str]]]":
    """Return the blocks of the report: finished runs, each with the name of its row."""
    found = []
    for grid in grids.values():
        for study in grid.studies:
            for block in study.blocks:
                cells = (grid.cell(study, block, row, seed) for row in block.rows for seed in grid.seeds)
                names = {where: cell.name for cell in cells if (where := _locate(cell, data, kept)) is not None}
                if names:
                    found.append((f"{study.title}, {block.label}", names))
    return found


def _locate(cell: "Trial", data: Path | None, kept: "KeptResults") -> Path | None:
    """Return the folder of a finished run, or the address of its kept result."""
    from refprotofl.federation import current_folder

    folder = current_folder(cell.folder, cell.experiment, data)
    return folder if (folder / "summary.json").exists() else kept.address(cell)


def _write(grids: "dict[str, Grid]", results: "dict[str, Result]", last: int, out_dir: Path) -> None:
    """Write all tables to files, and print the overviews."""
    from refprotofl.report import write_table
    from refprotofl.studies.reproduce.paper_tables import build_tables

    folder, written = out_dir / "tables", 0
    explained: set[str] = set()
    for name, grid in grids.items():
        tables = build_tables(name, grid, results, last)
        for table in (*tables.overviews, *tables.details):
            write_table(folder, table)
            written += 1
        for table in tables.overviews:
            show_table(table, [note for note in table.notes if note not in explained])
            explained.update(table.notes)
    if written:
        say(f"{counted(written, 'table')} in {for_terminal(folder)}, each as Markdown, LaTeX, CSV and JSON")


def _draw(
    grids: "dict[str, Grid]",
    scope: "Scope",
    results: "dict[str, Result]",
    last: int,
    data: Path | None,
    out_dir: Path,
) -> None:
    from refprotofl.studies.reproduce.figures import (
        curve_figures,
        finished_runs,
        front_figures,
        partition_figure,
        sweep_figures,
        tsne_figure,
    )

    folder, written = out_dir / "figures", []
    if "partition-figure" in grids:
        written += partition_figure(grids["partition-figure"], scope, data, folder)
    if "tsne-figure" in grids:
        runs, lacking = finished_runs(grids["tsne-figure"], data)
        written += tsne_figure(grids["tsne-figure"], runs, data, folder)
        if lacking:
            names = ", ".join(for_terminal(cell.name) for cell in lacking)
            warn(f"The t-SNE figure is without {names}: it needs their run folders.")
    for name, draw in (
        ("accuracy", curve_figures),
        ("accuracy", front_figures),
        ("thin", front_figures),
        ("curves", curve_figures),
        ("sweeps", sweep_figures),
    ):
        if name in grids:
            written += draw(grids[name], results, last, folder)
    for sentence in written:
        say(for_terminal(sentence))
