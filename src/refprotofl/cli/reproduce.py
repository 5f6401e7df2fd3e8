"""The command `reproduce`."""

from collections.abc import Sequence
from dataclasses import dataclass
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
    read_path,
    read_seeds,
)
from refprotofl.cli.grids import run_grid, show_table, warn_of
from refprotofl.cli.output import notes, say, warn
from refprotofl.cli.report import report_beside
from refprotofl.cli.run import read_workers, with_device
from refprotofl.core.errors import RunError
from refprotofl.core.escaping import for_terminal
from refprotofl.core.units import counted, duration

if TYPE_CHECKING:
    from refprotofl.federation.session import Workers as Count
    from refprotofl.studies.cells import Cell
    from refprotofl.studies.reproduce.studies import Grid, Scope
    from refprotofl.studies.results import KeptResults, Result
    from refprotofl.studies.runner import Failed
    from refprotofl.studies.timing import Clock


class What(StrEnum):
    accuracy = "accuracy"
    ablation = "ablation"
    communication = "communication"
    sweeps = "sweeps"
    compressors = "compressors"
    curves = "curves"
    partition_figure = "partition-figure"
    tsne_figure = "tsne-figure"
    thin = "thin"
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


@app.command(epilog="Example: refprotofl reproduce accuracy --preset small --dataset fashion-mnist --alpha 0.5")
def reproduce(
    what: Annotated[What, typer.Argument(help="Which table or figure.", show_default=False)],
    preset: Annotated[Sizes, typer.Option(help="paper is the paper's setting; the others are smaller.")] = Sizes.quick,
    dataset: Annotated[
        str | None,
        typer.Option(help="Data sets with commas between; the paper's four, or digits with quick.", show_default=False),
    ] = None,
    alpha: Annotated[str, typer.Option(help="Dirichlet's alphas with commas between.")] = "0.5,100",
    methods: Annotated[
        str | None,
        typer.Option(help="Only these, with commas between; one that the paper lacks is added.", show_default=False),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds with commas between.")] = "0,1,2",
    variant: Annotated[
        Variants,
        typer.Option(
            help="standard: who averages weights shares the whole model; reconstruction: all share the adapter and are "
            "scored before aggregation, as the paper most likely did."
        ),
    ] = Variants.both,
    tuned: Annotated[
        list[str] | None,
        typer.Option(
            help="DATASET=FILE.toml: what tune chose, for the standard variant; repeatable.", show_default=False
        ),
    ] = None,
    settings: Settings = None,
    against: Annotated[
        str,
        typer.Option(
            metavar="ROW", help="The row that others are set against, named as in the table.", show_default="RefProtoFL"
        ),
    ] = "",
    protocol: Annotated[
        str,
        typer.Option(
            help="The accuracy that rows are compared by; for the standard variant.",
            show_default="the table's own",
        ),
    ] = "",
    last: Annotated[int, typer.Option(min=2, help="Evaluations at the end whose mean stands beside the last.")] = 3,
    out_dir: Annotated[
        Path,
        typer.Option(
            "--out", parser=read_path, metavar="DIR", help="For runs, cells, tables, figures; kept and reused."
        ),
    ] = Path("runs/reproduce"),
    results: Annotated[
        list[Path] | None,
        typer.Option(
            parser=read_path,
            metavar="DIR",
            help="Folder of studies whose finished runs are used, too; repeatable.",
            show_default=False,
        ),
    ] = None,
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    no_runs: Annotated[
        bool, typer.Option("--no-runs", help="Only from what is finished; what is missing is named.")
    ] = False,
) -> None:
    """Run what the paper's tables and figures need, and write them; what the paper prints stands beside.

    A grid that is interrupted goes on where it was, and several terminals may work at the same one.
    """
    with nothing_kept_yet():
        limit_kernels(None, settings)
        from refprotofl.studies.cells import split_list
        from refprotofl.studies.reproduce.request import (
            VARIANTS,
            Asked,
            default_datasets,
            doubts,
            read_alphas,
            read_tuned_files,
        )
        from refprotofl.studies.reproduce.studies import Scope
        from refprotofl.studies.results import CELLS, KeptResults, find_cells

        datasets = tuple(dict.fromkeys(split_list(dataset))) if dataset else default_datasets(preset)
        asked = Asked(
            what=what,
            preset=preset,
            scope=Scope(datasets, read_alphas(alpha), tuple(split_list(methods or ""))),
            variants=tuple(one for one in VARIANTS if variant in (Variants.both, one)),
            settings=tuple(with_device(settings or [], device)),
            seeds=tuple(dict.fromkeys(read_seeds(seeds))),
            tuned=read_tuned_files(tuned or [], datasets),
            out=out_dir,
            against=against.strip(),
            protocol=protocol.strip(),
        )
        count, grids = read_workers(workers), asked.grids()
        kept = KeptResults(out_dir / CELLS, tuple(file for folder in results or () for file in find_cells(folder)))
    for sentence in doubts(asked.tuned, asked.seeds):
        warn(for_terminal(sentence))
    gathered = _gather(grids, data, count, out_dir, kept, no_runs)
    _say_numerics(gathered.results)
    _write(grids, gathered.results, last, out_dir)
    _draw(grids, asked.scope, gathered.results, last, data, out_dir)
    if gathered.results:
        report_beside([out_dir], out_dir / "report.html", data, blocks=_blocks(grids, data, kept))
    if gathered.failed:
        raise typer.Exit(RunError.exit_code)


def _say_numerics(results: "dict[str, Result]") -> None:
    from refprotofl.studies.results import count_numerics

    if results:
        say(f"Numerics of the results: {count_numerics(results.values())}", notes)


@dataclass(frozen=True)
class _Gathered:
    results: "dict[str, Result]"  # all that are there in the end, by the hash of what was asked for
    failed: int = 0  # runs that came to none

    def __add__(self, more: "_Gathered") -> "_Gathered":
        return _Gathered(self.results | more.results, self.failed + more.failed)


def _gather(
    grids: "dict[str, Grid]", data: Path | None, workers: "Count", out_dir: Path, kept: "KeptResults", no_runs: bool
) -> _Gathered:
    from refprotofl.studies.timing import Clock

    cells = {cell.experiment.hash: cell for grid in grids.values() for cell in grid.cells()}
    found = {name: kept.find(cell, data) for name, cell in cells.items()}
    results = {name: result for name, result in found.items() if result is not None}
    drawn = {cell.experiment.hash: cell for cell in _without_model(grids, data)}
    left = {name: cell for name, cell in cells.items() if name not in results or name in drawn}
    if cells:
        say(f"{counted(len(cells), 'run')}, {len(cells) - len(left)} of them finished before", notes)
    if not left or no_runs:
        return _Gathered(results)
    finished = {name: result["summary"] for name, result in results.items() if name not in left}
    clock = Clock(list(cells.values()), finished, data, lambda words: say(words, notes))
    say(f"The others take about {duration(clock.total)} in one process of this machine", notes)
    gathered = _Gathered(results)
    for again in (False, True):  # a kept result is enough for tables, not for what is drawn of a model
        asked = [cell for name, cell in left.items() if (name in results) is again]
        gathered += _run(asked, data, workers, clock, out_dir, None if again else kept)
    return gathered


def _without_model(grids: "dict[str, Grid]", data: Path | None) -> "list[Cell]":
    """Cells whose model is drawn, and which have no finished run folder."""
    from refprotofl.studies.reproduce.figures import finished_runs

    return finished_runs(grids["tsne-figure"], data)[1] if "tsne-figure" in grids else []


def _run(
    cells: "Sequence[Cell]",
    data: Path | None,
    workers: "Count",
    clock: "Clock",
    out_dir: Path,
    kept: "KeptResults | None",
) -> _Gathered:
    """Long runs in worker processes one by one, short ones several at once, unless the user says how."""
    from refprotofl.studies.pool import hands_for

    failures: list[Failed] = []
    workers_of = {cell.experiment.hash: clock.workers(cell, workers) for cell in cells}
    short = workers == "auto" and set(workers_of.values()) == {1}
    done = run_grid(
        cells,
        data,
        lambda cell: workers_of[cell.experiment.hash],
        out_dir,
        kept=kept,
        failed=failures.append,
        hands=hands_for(cells, sum(map(clock.seconds, cells))) if short else 0,
    )
    warn_of(failures)
    return _Gathered({cell.experiment.hash: result for cell, result in done}, len(failures))


def _blocks(grids: "dict[str, Grid]", data: Path | None, kept: "KeptResults") -> "list[tuple[str, dict[Path, str]]]":
    """Study by study, as the tables have it: where each finished run is, and what its row is called."""
    found = []
    for grid in grids.values():
        for study in grid.studies:
            for block in study.blocks:
                cells = (grid.cell(study, block, row, seed) for row in block.rows for seed in grid.seeds)
                called = {place: cell.name for cell in cells if (place := _place(cell, data, kept)) is not None}
                if called:
                    found.append((f"{study.title}, {block.label}", called))
    return found


def _place(cell: "Cell", data: Path | None, kept: "KeptResults") -> Path | None:
    """Return the folder of a finished run, or the address of its kept result."""
    from refprotofl.federation.provenance import current_folder

    folder = current_folder(cell.folder, cell.experiment, data)
    return folder if (folder / "summary.json").exists() else kept.address(cell)


def _write(grids: "dict[str, Grid]", results: "dict[str, Result]", last: int, out_dir: Path) -> None:
    """All tables to files, and those that are to be read first to the screen."""
    from refprotofl.report.tables import write_table
    from refprotofl.studies.reproduce.paper_tables import tables_of

    folder, written = out_dir / "tables", 0
    explained: set[str] = set()
    for name, grid in grids.items():
        told = tables_of(name, grid, results, last)
        for table in (*told.first, *told.details):
            write_table(folder, table)
            written += 1
        for table in told.first:
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
        partition_figure,
        sweep_figures,
        tsne_figure,
    )

    folder, told = out_dir / "figures", []
    if "partition-figure" in grids:
        told += partition_figure(grids["partition-figure"], scope, data, folder)
    if "tsne-figure" in grids:
        runs, lacking = finished_runs(grids["tsne-figure"], data)
        told += tsne_figure(grids["tsne-figure"], runs, data, folder)
        if lacking:
            names = ", ".join(for_terminal(cell.name) for cell in lacking)
            warn(f"The t-SNE figure is without {names}: it takes their run folders.")
    for name, draw in {"accuracy": curve_figures, "curves": curve_figures, "sweeps": sweep_figures}.items():
        if name in grids:
            told += draw(grids[name], results, last, folder)
    for sentence in told:
        say(for_terminal(sentence))
