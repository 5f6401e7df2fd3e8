"""The pictures of each grid, as .png to look at and .pdf to print."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from refprotofl.core.escaping import for_file_name
from refprotofl.experiment.presets import load_experiment
from refprotofl.federation.provenance import current_folder
from refprotofl.report.pictures.accuracy import Stop, draw_curves, draw_sweep
from refprotofl.report.pictures.embedding import draw_embeddings, embed_run
from refprotofl.report.pictures.partition import draw_partitions, partition_panel
from refprotofl.report.statistics import estimate
from refprotofl.studies.reproduce.cells import read_study
from refprotofl.studies.reproduce.studies import Grid, Results, Row, Scope
from refprotofl.studies.results import Point, Result
from refprotofl.studies.trials import Trial

SUFFIXES = (".png", ".pdf")


def partition_figure(grid: Grid, scope: Scope, data: Path | None, folder: Path) -> list[str]:
    """Figure 1: one picture a data set, a panel an alpha."""
    told = []
    for dataset in scope.datasets:
        settings = [*grid.settings, f"dataset={json.dumps(dataset)}", f"seed={grid.seeds[0]}"]
        experiments = [load_experiment(None, grid.preset, [*settings, f"alpha={alpha:g}"]) for alpha in scope.alphas]
        plain = [partition_panel(experiment, data) for experiment in experiments]
        panels = [replace(panel, title=f"{dataset}, {panel.title}") for panel in plain]
        name = f"partition-{for_file_name(dataset)}"
        told += [draw_partitions(panels, folder / f"{name}{suffix}") for suffix in SUFFIXES]
    return told


def finished_runs(grid: Grid, data: Path | None) -> tuple[list[Trial], list[Trial]]:
    """Cells whose run folder holds a finished run, and the others; under the labels of their rows."""
    found: list[Trial] = []
    lacking: list[Trial] = []
    for study, block, row in grid.rows():
        cell = grid.cell(study, block, row, grid.seeds[0])
        cell = replace(cell, folder=current_folder(cell.folder, cell.experiment, data))
        (found if (cell.folder / "summary.json").exists() else lacking).append(cell)
    return found, lacking


def tsne_figure(grid: Grid, runs: Sequence[Trial], data: Path | None, folder: Path) -> list[str]:
    """Figure 2: a panel for each of these finished runs, by name."""
    panels = {cell.name: embed_run(cell.folder, data) for cell in runs}
    samples = grid.studies[0].blocks[0].label if grid.studies else ""
    return [draw_embeddings(panels, folder / f"tsne{end}", samples) for end in SUFFIXES] if panels else []


def curve_figures(grid: Grid, results: Results, last: int, folder: Path) -> list[str]:
    """Accuracy by round and by bytes, for each block of the grid's studies that was evaluated more than once."""
    told = []
    for study in grid.studies:
        for read in read_study(grid, study, results, last):
            curves = {label: curve_over_seeds(found, study.protocol) for label, found in read.results.items()}
            known = {label: curve for label, curve in curves.items() if curve}
            name, title = f"{study.name}-{read.block.file_name}", f"{study.title}\n{read.block.label}"
            if any(len(curve) > 1 for curve in known.values()):
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


def sweep_figures(grid: Grid, results: Results, last: int, folder: Path) -> list[str]:
    """Accuracy by the value of the key that a study sweeps."""
    told = []
    for study in grid.studies:
        for read in read_study(grid, study, results, last):
            found = {_value(row): known for row in read.block.rows if (known := read.estimate(row)) is not None}
            name, title = f"{study.name}-{read.block.file_name}", f"{study.title}: {read.block.label}"
            if len(found) > 1:
                looks = (study.swept, study.protocol, title)
                told += [draw_sweep(found, folder / f"{name}{end}", *looks) for end in SUFFIXES]
    return told


def _value(row: Row) -> float:
    """Of the key that a sweep's row is named by."""
    return float(row.label.rpartition("=")[2])
