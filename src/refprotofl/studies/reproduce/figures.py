"""Figures of each grid, as .png and .pdf."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from refprotofl.core import for_file_name
from refprotofl.experiment import load_experiment
from refprotofl.federation import current_folder
from refprotofl.report import (
    draw_curves,
    draw_embeddings,
    draw_figure,
    draw_partitions,
    draw_sweep,
    embed_run,
    estimate,
    frontier_figure,
    partition_panel,
)
from refprotofl.report.pictures.accuracy import Stop
from refprotofl.studies.reproduce.cells import read_study
from refprotofl.studies.reproduce.studies import Grid, Results, Row, Scope
from refprotofl.studies.results import Point, Result
from refprotofl.studies.trials import Trial

SUFFIXES = (".png", ".pdf")


def partition_figure(grid: Grid, scope: Scope, data: Path | None, folder: Path) -> list[str]:
    """Draw Figure 1: one picture per data set, one panel per alpha."""
    written = []
    for dataset in scope.datasets:
        settings = [*grid.settings, f"dataset={json.dumps(dataset)}", f"seed={grid.seeds[0]}"]
        experiments = [load_experiment(None, grid.preset, [*settings, f"alpha={alpha:g}"]) for alpha in scope.alphas]
        plain = [partition_panel(experiment, data) for experiment in experiments]
        panels = [replace(panel, title=f"{dataset}, {panel.title}") for panel in plain]
        name = f"partition-{for_file_name(dataset)}"
        written += [draw_partitions(panels, folder / f"{name}{suffix}") for suffix in SUFFIXES]
    return written


def finished_runs(grid: Grid, data: Path | None) -> tuple[list[Trial], list[Trial]]:
    """Return the trials whose run folder holds a finished run, and the others."""
    found: list[Trial] = []
    lacking: list[Trial] = []
    for study, block, row in grid.rows():
        cell = grid.cell(study, block, row, grid.seeds[0])
        cell = replace(cell, folder=current_folder(cell.folder, cell.experiment, data))
        (found if (cell.folder / "summary.json").exists() else lacking).append(cell)
    return found, lacking


def tsne_figure(grid: Grid, runs: Sequence[Trial], data: Path | None, folder: Path) -> list[str]:
    """Draw Figure 2: one panel per finished run."""
    panels = {cell.name: embed_run(cell.folder, data) for cell in runs}
    samples = grid.studies[0].blocks[0].label if grid.studies else ""
    return [draw_embeddings(panels, folder / f"tsne{end}", samples) for end in SUFFIXES] if panels else []


def curve_figures(grid: Grid, results: Results, last: int, folder: Path) -> list[str]:
    """Draw accuracy by round and by bytes, for each block that was evaluated more than once."""
    written = []
    for study in grid.studies:
        for read in read_study(grid, study, results, last):
            curves = {label: curve_over_seeds(found, study.protocol) for label, found in read.results.items()}
            known = {label: curve for label, curve in curves.items() if curve}
            name, title = f"{study.name}-{read.block.file_name}", f"{study.title}\n{read.block.label}"
            if any(len(curve) > 1 for curve in known.values()):
                written += [draw_curves(known, folder / f"{name}{end}", study.protocol, title) for end in SUFFIXES]
    return written


def front_figures(grid: Grid, results: Results, last: int, folder: Path) -> list[str]:
    """Draw accuracy against bytes with the Pareto front, for each block with methods of different traffic."""
    written = []
    for study in grid.studies:
        for read in read_study(grid, study, results, last):
            for drawn in frontier_figure([*read.rows.values()], study.protocol):
                titled = replace(drawn, title=f"{study.title}\n{read.block.label}")
                for end in SUFFIXES:
                    path = folder / f"{study.name}-{read.block.file_name}-bytes{end}"
                    draw_figure(titled, path)
                    written.append(f"{path}: accuracy against bytes. {drawn.caption}")
    return written


def curve_over_seeds(results: Sequence[Result], protocol: str) -> list[Stop]:
    """Average the curves at the rounds that all seeds were evaluated at."""
    curves: list[Mapping[int, Point]] = [{point["round"]: point for point in one["curve"]} for one in results]
    stops = []
    for number in sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []:
        points = [curve[number] for curve in curves]
        known = [value for point in points if (value := point["accuracy"].get(protocol)) is not None]
        if len(known) == len(points):
            stops.append(Stop(number, fmean(point["bytes"] for point in points), estimate(known)))
    return stops


def sweep_figures(grid: Grid, results: Results, last: int, folder: Path) -> list[str]:
    """Draw accuracy by the value of the key that a study sweeps."""
    written = []
    for study in grid.studies:
        for read in read_study(grid, study, results, last):
            found = {_value(row): known for row in read.block.rows if (known := read.estimate(row)) is not None}
            name, title = f"{study.name}-{read.block.file_name}", f"{study.title}: {read.block.label}"
            if len(found) > 1:
                looks = (study.swept, study.protocol, title)
                written += [draw_sweep(found, folder / f"{name}{end}", *looks) for end in SUFFIXES]
    return written


def _value(row: Row) -> float:
    """Return the value in the label of a sweep's row."""
    return float(row.label.rpartition("=")[2])
