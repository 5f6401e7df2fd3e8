"""Several methods on the same partitions, initial weights and cohorts: a grid of runs, each done once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from refprotofl.data import federate, load_dataset
from refprotofl.data.reading import reading_of
from refprotofl.errors import InputError
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import load_experiment
from refprotofl.methods import METHODS, find_method
from refprotofl.methods.costs import evaluate, symbols
from refprotofl.methods.declaration import Cost
from refprotofl.models import Parts, build_model
from refprotofl.records.summary import Summary
from refprotofl.report.choices import read_switches
from refprotofl.report.statistics import Estimate, estimate
from refprotofl.simulation.origin import current_folder
from refprotofl.simulation.resolving import resolve
from refprotofl.simulation.run import Watcher, Workers, run


@dataclass(frozen=True)
class Cell:
    """One method with one seed."""

    name: str  # as it was asked for, switches included
    experiment: Experiment
    folder: Path
    reused: bool = False  # its run was finished before


@dataclass(frozen=True)
class OverSeeds:
    """One method over all seeds; a protocol that the method does not have is absent."""

    name: str
    accuracy: dict[str, Estimate]
    uplink_bytes: Estimate
    downlink_bytes: Estimate
    seconds: Estimate
    facts: dict[str, float | int | str]


@dataclass(frozen=True)
class CostRow:
    """What one method shares and sends, a client and round."""

    name: str
    line: str
    shared: Parts
    formula: Cost
    up: int
    down: int


def cost_rows(experiment: Experiment, data: Path | None) -> list[CostRow]:
    """Every method's cost for this experiment's model and data."""
    dataset = load_dataset(experiment.dataset, data, experiment.seed, reading_of(experiment))
    resolved = resolve(experiment, federate(experiment, dataset))
    rows = []
    for name, method in METHODS.items():
        shared, formula = method.shared(resolved), method.cost(resolved)
        model = build_model(resolved, method.extra_outputs(resolved))
        values = symbols(formula, resolved, sum(model.sizes(shared)))
        up, down = evaluate(formula.up, values), evaluate(formula.down, values)
        rows.append(CostRow(name, method.line, shared, formula, up, down))
    return rows


def plan(
    file: Path | None,
    preset: str | None,
    settings: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
) -> list[Cell]:
    """The grid's cells, seed by seed, so that an interrupted comparison is complete for its first seeds.

    A method may carry switches of its own, as `choices` reads them: `fedavg:share=full`.
    """
    if not methods or not seeds:
        raise InputError("A comparison needs at least one method and one seed.")
    repeated = sorted({name for name in methods if list(methods).count(name) > 1})
    if repeated or len(set(seeds)) < len(seeds):
        raise InputError(f"A method or seed is named twice: {', '.join(repeated) or list(seeds)}.")
    cells = []
    for seed in seeds:
        for name in methods:
            method, switches = read_switches(name)
            find_method(method)
            chosen = [*settings, f'method="{method}"', f"seed={seed}", *switches]
            experiment = load_experiment(file, preset, chosen)
            cells.append(Cell(name, experiment, out / experiment.hash[:16]))
    return cells


def run_cells(
    cells: Sequence[Cell], data: Path | None, workers: Workers, watch: Callable[[int, Cell], Watcher]
) -> Iterator[tuple[Cell, Summary]]:
    """Each cell's summary; a finished run is read, an interrupted one goes on.

    Where data or the user's code changed since, a run of its own is begun beside it.
    """
    for number, planned in enumerate(cells):
        cell = replace(planned, folder=current_folder(planned.folder, planned.experiment, data))
        finished = run(
            cell.experiment, out=cell.folder, data=data, workers=workers, resume=True, watcher=watch(number, cell)
        )
        yield replace(cell, reused=finished.reused), finished.summary


def tabulate(results: Sequence[tuple[Cell, Summary]]) -> list[OverSeeds]:
    by_name: dict[str, list[Summary]] = {}
    for cell, summary in results:
        by_name.setdefault(cell.name, []).append(summary)
    return [_over_seeds(name, summaries) for name, summaries in by_name.items()]


def _over_seeds(name: str, summaries: list[Summary]) -> OverSeeds:
    accuracy = {}
    for protocol in PROTOCOLS:
        values = [summary["accuracy"].get(protocol) for summary in summaries]  # an older run may lack it
        known = [value for value in values if value is not None]
        if len(known) == len(summaries):
            accuracy[protocol] = estimate(known)
    return OverSeeds(
        name=name,
        accuracy=accuracy,
        uplink_bytes=estimate([summary["communication"]["uplink"]["payload_bytes"] for summary in summaries]),
        downlink_bytes=estimate([summary["communication"]["downlink"]["payload_bytes"] for summary in summaries]),
        seconds=estimate([summary["seconds"]["total"] for summary in summaries]),
        facts=summaries[0].get("facts", {}),
    )
