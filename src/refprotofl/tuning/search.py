"""A search for each of several methods, on the same data and with the same budget."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from refprotofl.basics.units import counted
from refprotofl.errors import InputError, RunError
from refprotofl.experiment import Experiment
from refprotofl.grids.cells import Cell, cell_name, cell_of
from refprotofl.grids.results import Result
from refprotofl.grids.running import Failed, run_cells
from refprotofl.methods.catalogue import find_method
from refprotofl.simulation.run import Watcher, Workers
from refprotofl.tuning.space import Dimension, dimensions_of, refuse_unknown
from refprotofl.tuning.strategies import STRATEGIES, Budget, Search, Trial

SHARE = 0.1  # of their training samples that clients hold out, unless the experiment says otherwise

Watch = Callable[[Sequence[Cell]], Callable[[int, Cell], Watcher]]


@dataclass(frozen=True)
class Request:
    """What is searched, and on which experiment."""

    file: Path | None
    preset: str | None
    settings: tuple[str, ...]
    methods: tuple[str, ...]
    dimensions: tuple[Dimension, ...]
    strategy: str
    trials: int  # for strategies that draw
    seeds: tuple[int, ...]
    protocol: str
    out: Path

    def cell(self, name: str, trial: Trial, seed: int) -> Cell:
        """A run of a trial. One that goes on with more rounds does so in the same folder, if its method lets it."""
        own = [*self.settings, f"rounds={trial.rounds}", *trial.typed]
        cell = cell_of(self.file, self.preset, own, name, seed, self.out / "runs")
        if not cell.experiment.validation:
            cell = cell_of(self.file, self.preset, [*own, f"validation={SHARE}"], name, seed, self.out / "runs")
        named = replace(cell, name=":".join([name, *trial.typed]))
        if find_method(cell.experiment.method).depends_on_rounds:
            return named
        whole = cell.experiment.model_copy(update={"rounds": self.rounds})
        return replace(named, folder=self.out / "runs" / cell_name(whole))

    @property
    def base(self) -> Experiment:
        """Without anything that is searched."""
        return cell_of(self.file, self.preset, self.settings, self.methods[0], self.seeds[0], self.out).experiment

    @property
    def rounds(self) -> int:
        return self.base.rounds

    def search(self, name: str) -> Search:
        budget = Budget(self.rounds, self.trials)
        return STRATEGIES[self.strategy](dimensions_of(name, self.dimensions), budget)


@dataclass(frozen=True)
class Tried:
    """A trial and how it did."""

    trial: Trial
    values: dict[int, float]  # by seed
    failed: str = ""  # why it came to nothing

    @property
    def score(self) -> float:
        return -math.inf if self.failed else fmean(self.values.values())


@dataclass(frozen=True)
class Tuned:
    """One method's search."""

    name: str
    chosen: Tried
    tried: tuple[Tried, ...]
    at_an_end: tuple[str, ...]  # keys whose chosen value is the last of those that were allowed


def check(request: Request) -> int:
    """Refuses a search that cannot be done, or that is not the same for all; gives the number of a method's trials."""
    if not request.methods or not request.seeds or not request.dimensions:
        raise InputError("A search needs a method, a seed, and a key with --search.")
    refuse_unknown(request.dimensions, request.methods)
    counts = {name: len(_trials_ahead(request, name)) for name in request.methods}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InputError(
            f"Every method gets the same budget, but the trials would be: {told}. Give a method another key or more "
            "values with --search METHOD@key=values, or let --strategy random draw as many for all."
        )
    return next(iter(counts.values()))


def _trials_ahead(request: Request, name: str) -> set[tuple[str, int]]:
    """Different experiments that the search would come to, whatever their scores: by hash, with their rounds."""
    found: set[tuple[str, int]] = set()
    search = request.search(name)
    proposed = next(search)
    while proposed:
        hashes = ((request.cell(name, trial, request.seeds[0]).experiment.hash, trial.rounds) for trial in proposed)
        found.update(hashes)
        try:
            proposed = search.send(dict.fromkeys(proposed, 0.0))
        except StopIteration:
            break
    return found


def tune(request: Request, data: Path | None, workers: Workers, watch: Watch) -> Iterator[Tuned]:
    """Method by method. What was tried before is read, so a search that was interrupted goes on."""
    for name in request.methods:
        tried: dict[Trial, Tried] = {}
        search = request.search(name)
        proposed = next(search)
        while True:
            new = [trial for trial in dict.fromkeys(proposed) if trial not in tried]
            tried |= _try(request, name, new, data, workers, watch)
            try:
                proposed = search.send({trial: tried[trial].score for trial in dict.fromkeys(proposed)})
            except StopIteration as ended:
                yield _tuned(request, name, tried[ended.value], list(tried.values()))
                break


def _try(
    request: Request, name: str, trials: Sequence[Trial], data: Path | None, workers: Workers, watch: Watch
) -> dict[Trial, Tried]:
    found = {trial: Tried(trial, {}) for trial in trials}
    cells: dict[str, Cell] = {}
    trials_of: dict[str, list[Trial]] = {}  # several may be the same experiment, in other words
    for trial in trials:
        for seed in request.seeds:
            cell = request.cell(name, trial, seed)
            cells[cell.experiment.hash] = cell
            trials_of.setdefault(cell.experiment.hash, []).append(trial)

    def fail(failed: Failed) -> None:
        for trial in trials_of[failed.cell.experiment.hash]:
            found[trial] = replace(found[trial], failed=str(failed.problem))

    planned = list(cells.values())
    for cell, result in run_cells(planned, data, workers, watch(planned), kept=request.out / "cells", failed=fail):
        score = _score(result, request.protocol)
        for trial in trials_of[cell.experiment.hash]:
            found[trial] = replace(found[trial], values={**found[trial].values, cell.experiment.seed: score})
    return found


def _score(result: Result, protocol: str) -> float:
    score = result["summary"]["accuracy"].get(protocol)
    if score is None:
        known = [name for name, value in result["summary"]["accuracy"].items() if value is not None]
        raise InputError(f"--protocol {protocol}: this method has {', '.join(known)}.")
    return score


def _tuned(request: Request, name: str, chosen: Tried, tried: list[Tried]) -> Tuned:
    """What the same experiment was tried as in other words is told once."""
    once = {request.cell(name, one.trial, request.seeds[0]).experiment.hash: one for one in tried}
    if chosen.failed:
        raise RunError(f"{name}: none of {counted(len(tried), 'trial')} came to a result: {chosen.failed}")
    values = dict(chosen.trial.settings)
    ends = [one.key for one in dimensions_of(name, request.dimensions) if one.values.is_end(values[one.key])]
    return Tuned(name, chosen, tuple(once.values()), tuple(ends))
