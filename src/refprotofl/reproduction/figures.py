"""The pictures of each grid, as .png to look at and .pdf to print."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from refprotofl.experiment.presets import load_experiment
from refprotofl.grids.cells import Cell
from refprotofl.grids.results import Point, Result
from refprotofl.report.embeddings import embed_run
from refprotofl.report.pictures.curves import Stop, draw_curves
from refprotofl.report.pictures.embedding import draw_embeddings
from refprotofl.report.pictures.partition import draw_partitions, partition_panel
from refprotofl.report.statistics import estimate
from refprotofl.reproduction.planning import Grid
from refprotofl.reproduction.studies import Scope
from refprotofl.reproduction.telling import Results, read_study

SUFFIXES = (".png", ".pdf")


def partition_figure(grid: Grid, scope: Scope, data: Path | None, folder: Path) -> list[str]:
    """Figure 1: one picture a data set, a panel an alpha."""
    told = []
    for dataset in scope.datasets:
        settings = [f'dataset="{dataset}"', *grid.settings, f"seed={grid.seeds[0]}"]
        experiments = [load_experiment(None, grid.preset, [*settings, f"alpha={alpha:g}"]) for alpha in scope.alphas]
        panels = [partition_panel(experiment, data) for experiment in experiments]
        told += [draw_partitions(panels, folder / f"partition-{dataset}{suffix}") for suffix in SUFFIXES]
    return told


def tsne_figure(cells: Sequence[Cell], data: Path | None, folder: Path) -> list[str]:
    """Figure 2: a panel for each of these finished runs, by name."""
    panels = {cell.name: embed_run(cell.folder, data) for cell in cells}
    return [draw_embeddings(panels, folder / f"tsne{suffix}") for suffix in SUFFIXES] if panels else []


def curve_figures(grid: Grid, results: Results, last: int, folder: Path) -> list[str]:
    """Accuracy by round and by bytes, for each block of the grid's studies."""
    told = []
    for study in grid.studies:
        for read in read_study(grid, study, results, last):
            curves = {label: curve_over_seeds(found, study.protocol) for label, found in read.results.items()}
            known = {label: curve for label, curve in curves.items() if curve}
            name, title = f"{study.name}-{read.block.file_name}", f"{study.title}: {read.block.label}"
            if known:
                told += [draw_curves(known, folder / f"{name}{end}", study.protocol, title) for end in SUFFIXES]
    return told


def curve_over_seeds(results: Sequence[Result], protocol: str) -> list[Stop]:
    """At the rounds that all seeds were evaluated at."""
    curves: list[Mapping[int, Point]] = [{point["round"]: point for point in one["curve"]} for one in results]
    stops = []
    for number in sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []:
        points = [curve[number] for curve in curves]
        known = [value for point in points if (value := point["accuracy"].get(protocol)) is not None]
        if len(known) == len(points):
            stops.append(Stop(number, fmean(point["bytes"] for point in points), estimate(known)))
    return stops
