"""Several methods on the same partitions, initial weights and cohorts: a grid of runs, each done once."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from refprotofl.basics.escapes import for_file_name
from refprotofl.basics.parts import ADAPTER, ALL, Parts
from refprotofl.data import federate, load_dataset
from refprotofl.data.reading import reading_of
from refprotofl.errors import InputError
from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.experiment import Experiment
from refprotofl.experiment.presets import load_experiment
from refprotofl.methods import METHODS, find_method
from refprotofl.methods.costs import evaluate, symbols
from refprotofl.methods.declaration import Cost
from refprotofl.models import build_model
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
    share: str  # what its clients really share: adapter, full, nothing, or parts by name
    accuracy: dict[str, Estimate]
    values: dict[str, dict[int, float]]  # the accuracies by protocol and seed
    bytes: dict[str, float]  # means: uplink, downlink, one_off and their total; evaluation is apart
    local_epochs: float  # passes over their own data that all clients made in all rounds
    steps: float | None  # of their optimisers meanwhile; None where a run did not count them
    seconds: float
    facts: dict[str, dict[int, float | int | str]]  # what the method tells of itself, by seed
    notes: tuple[str, ...]  # where it departs from what its authors published
    runs: tuple[str, ...]  # the folders


@dataclass(frozen=True)
class CostRow:
    """What one method shares and sends, a client and round."""

    name: str
    line: str
    share: str
    formula: Cost
    up: int
    down: int
    notes: tuple[str, ...]


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
        rows.append(CostRow(name, method.line, _words(shared), formula, up, down, method.notes))
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
            cells.append(Cell(name, experiment, cell_folder(out, experiment)))
    return cells


def cell_folder(out: Path, experiment: Experiment) -> Path:
    """A folder that tells what is in it; an earlier version's is taken where it holds a finished run."""
    earlier = out / experiment.hash[:16]
    if (earlier / "summary.json").exists():
        return earlier
    method, dataset = for_file_name(experiment.method), for_file_name(Path(experiment.dataset).stem)
    return out / f"{method}-{dataset}-seed{experiment.seed}-{experiment.hash[:8]}"


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
    by_name: dict[str, list[tuple[Cell, Summary]]] = {}
    for cell, summary in results:
        by_name.setdefault(cell.name, []).append((cell, summary))
    return [_over_seeds(name, runs) for name, runs in by_name.items()]


def _over_seeds(name: str, runs: list[tuple[Cell, Summary]]) -> OverSeeds:
    summaries = {cell.experiment.seed: summary for cell, summary in runs}
    values = {protocol: _known(summaries, protocol) for protocol in PROTOCOLS}
    values = {protocol: known for protocol, known in values.items() if len(known) == len(summaries)}
    ran = Experiment.parse(runs[0][1]["experiment"])
    method = find_method(ran.method)
    facts = dict.fromkeys(fact for summary in summaries.values() for fact in summary.get("facts", {}))
    return OverSeeds(
        name=name,
        share=_words(method.shared(ran)),
        accuracy={protocol: estimate(list(known.values())) for protocol, known in values.items()},
        values=values,
        bytes=_bytes(summaries.values()),
        local_epochs=fmean(_epochs(summary) for summary in summaries.values()),
        steps=_steps(summaries.values()),
        seconds=fmean(summary["seconds"]["total"] for summary in summaries.values()),
        facts={
            fact: {seed: found["facts"][fact] for seed, found in summaries.items() if fact in found.get("facts", {})}
            for fact in facts
        },
        notes=(*method.notes, *ran.compress.notes),
        runs=tuple(str(cell.folder) for cell, _ in runs),
    )


def _known(summaries: dict[int, Summary], protocol: str) -> dict[int, float]:
    """By seed; an older run may lack the protocol."""
    found = {seed: summary["accuracy"].get(protocol) for seed, summary in summaries.items()}
    return {seed: value for seed, value in found.items() if value is not None}


def _bytes(summaries: Collection[Summary]) -> dict[str, float]:
    traffic = [summary["communication"] for summary in summaries]
    means = {
        "uplink": fmean(one["uplink"]["payload_bytes"] for one in traffic),
        "downlink": fmean(one["downlink"]["payload_bytes"] for one in traffic),
        "one_off": fmean(one["one_off"]["payload_bytes"] for one in traffic),
    }
    return {**means, "total": sum(means.values())}


def _epochs(summary: Summary) -> int:
    ran = Experiment.parse(summary["experiment"])
    method = find_method(ran.method)
    passes = ran.rounds * ran.clients if method.pooled else summary["full_model"]["participations"]
    return passes * method.local_epochs(ran)


def _steps(summaries: Collection[Summary]) -> float | None:
    counted = [summary.get("steps") for summary in summaries]
    known = [steps for steps in counted if steps is not None]
    return fmean(known) if len(known) == len(counted) else None


def _words(shared: Parts) -> str:
    return {ALL: "full", ADAPTER: "adapter", (): "nothing"}.get(shared, ", ".join(shared))
