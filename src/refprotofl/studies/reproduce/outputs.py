"""The results of all grids of a request, and what is made of them: tables, figures, blocks of the report."""

from collections.abc import Callable, Mapping
from pathlib import Path

from refprotofl.core import counted, duration
from refprotofl.federation import current_folder
from refprotofl.report import Blocks, write_table
from refprotofl.studies.planner import Planner
from refprotofl.studies.reproduce.figures import (
    curve_figures,
    finished_runs,
    front_figures,
    partition_figure,
    sweep_figures,
    tsne_figure,
)
from refprotofl.studies.reproduce.paper_tables import Tables, build_tables
from refprotofl.studies.reproduce.studies import Grid, Scope
from refprotofl.studies.results import KeptResults, Result
from refprotofl.studies.trials import Trial, unique

Grids = Mapping[str, Grid]
Say = Callable[[str], None]


def results_of(planner: Planner, grids: Grids, data: Path | None, no_runs: bool, say: Say) -> dict[str, Result]:
    """Return the results of all grids by hash; runs that are not finished are run, unless `no_runs`."""
    trials = unique(trial for grid in grids.values() for trial in grid.cells())
    results = planner.kept_results(trials)
    drawn = {trial.hash for trial in _without_model(grids, data)}  # kept results have no model to draw
    left = [trial for trial in trials if trial.hash not in results or trial.hash in drawn]
    if trials:
        say(f"{counted(len(trials), 'run')}, {len(trials) - len(left)} of them finished before")
    if not left or no_runs:
        return results
    finished = {name: result for name, result in results.items() if name not in drawn}
    seconds = planner.estimate(trials, finished, say)
    say(f"The others take {_about(seconds, planner.processes(left))}")
    missing = planner.run([trial for trial in left if trial.hash not in results])
    again = planner.run([trial for trial in left if trial.hash in results], need_folders=True)
    return results | {name: one.result for name, one in (missing.results | again.results).items()}


def _about(seconds: float, processes: int) -> str:
    if processes == 1:
        return f"about {duration(seconds)} in one process of this machine"
    return f"about {duration(seconds / processes)} in {processes} processes of this machine"


def _without_model(grids: Grids, data: Path | None) -> list[Trial]:
    """Return the trials whose model is drawn, and which have no finished run folder."""
    return finished_runs(grids["tsne-figure"], data)[1] if "tsne-figure" in grids else []


def blocks_of(grids: Grids, data: Path | None, kept: KeptResults) -> Blocks:
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


def _locate(cell: Trial, data: Path | None, kept: KeptResults) -> Path | None:
    """Return the folder of a finished run, or the address of its kept result."""
    folder = current_folder(cell.folder, cell.experiment, data)
    return folder if (folder / "summary.json").exists() else kept.address(cell)


def write_tables(grids: Grids, results: dict[str, Result], last: int, folder: Path) -> dict[str, Tables]:
    """Write all tables to files, and return them by table or figure."""
    found = {name: build_tables(name, grid, results, last) for name, grid in grids.items()}
    for tables in found.values():
        for table in (*tables.overviews, *tables.details):
            write_table(folder, table)
    return found


def draw_all(
    grids: Grids, scope: Scope, results: dict[str, Result], last: int, data: Path | None, folder: Path
) -> tuple[list[str], list[str]]:
    """Draw all figures; return a sentence for each, and the rows that the t-SNE figure is without."""
    written, lacking = [], []
    if "partition-figure" in grids:
        written += partition_figure(grids["partition-figure"], scope, data, folder)
    if "tsne-figure" in grids:
        runs, missing = finished_runs(grids["tsne-figure"], data)
        written += tsne_figure(grids["tsne-figure"], runs, data, folder)
        lacking = [cell.name for cell in missing]
    for name, draw in (
        ("accuracy", curve_figures),
        ("accuracy", front_figures),
        ("thin", front_figures),
        ("curves", curve_figures),
        ("sweeps", sweep_figures),
    ):
        if name in grids:
            written += draw(grids[name], results, last, folder)
    return written, lacking
