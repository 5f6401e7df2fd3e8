"""A search for each of several methods, on the same data and with the same budget."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean

from refprotofl.core.errors import InputError, RunError
from refprotofl.core.units import counted
from refprotofl.evaluation.protocols import check_protocol
from refprotofl.experiment import Experiment
from refprotofl.federation.resolution import prepare
from refprotofl.federation.session import Callback, Workers
from refprotofl.methods.catalogue import find_method
from refprotofl.studies.cells import Cell, cell_name, cell_of, read_name
from refprotofl.studies.results import CELLS, KeptResults
from refprotofl.studies.runner import Done, Failed, beside_longer, run_cells
from refprotofl.studies.timing import Pace, pace_of, workers_for
from refprotofl.studies.tune.space import Dimension, dimensions_of, refuse_unusable
from refprotofl.studies.tune.strategies import STRATEGIES, Budget, Search, Trial

SHARE = 0.1  # of their training samples that clients hold out, unless the experiment says otherwise

Watch = Callable[[Sequence[Cell]], Callable[[int, Cell], Callback]]


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
        own = [*self._settings, f"rounds={trial.rounds}", *trial.typed]
        cell = cell_of(self.file, self.preset, own, name, seed, self.out / "runs")
        named = replace(cell, name=":".join([name, *trial.typed]))
        if find_method(cell.experiment.method).depends_on_rounds:
            return named
        whole = cell.experiment.model_copy(update={"rounds": self.rounds})
        return replace(named, folder=self.out / "runs" / cell_name(whole))

    @cached_property
    def base(self) -> Experiment:
        """Without anything that is searched: what all trials have in common, but for the method."""
        return self._without_trial(self._settings)

    @cached_property
    def _settings(self) -> list[str]:
        """Those that were asked for, always with data held out: the test set is never scored."""
        asked = self._without_trial(self.settings).validation
        return [*self.settings, *([] if asked else [f"validation={SHARE}"])]

    def _without_trial(self, settings: Sequence[str]) -> Experiment:
        return cell_of(self.file, self.preset, settings, self.methods[0], self.seeds[0], self.out).experiment

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
    for one in request.methods:
        if read_name(one)[0] != one:
            raise InputError(f"{one}: a search writes what it finds by method, so leave the name out.")
    for what, named in (("method", request.methods), ("seed", request.seeds)):
        if len({*named}) < len(named):
            raise InputError(f"A {what} is named twice: {', '.join(map(str, named))}.")
    check_protocol(request.protocol)
    refuse_unusable(request.dimensions, request.methods)
    counts = {name: len(_trials_ahead(request, name)) for name in request.methods}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InputError(
            f"Every method gets the same budget, but the trials that are not the same in other words would be: {told}. "
            "Give a method another key or more values with --search METHOD@key=values; draws that repeat themselves "
            "get fewer in a range than in a short list of values."
        )
    return next(iter(counts.values()))


def _trials_ahead(request: Request, name: str) -> set[str]:
    """Different experiments that the search would come to, whatever their scores, by their hashes."""
    found: set[str] = set()
    search = request.search(name)
    proposed = next(search)
    while True:
        for trial in proposed:
            experiment = request.cell(name, trial, request.seeds[0]).experiment
            prepare(experiment)  # a method of the user's own checks its options here
            found.add(experiment.hash)
        try:
            proposed = search.send(dict.fromkeys(proposed, 0.0))
        except StopIteration:
            return found


def tune(request: Request, data: Path | None, workers: Workers, watch: Watch) -> Iterator[Tuned]:
    """Method by method. What was tried before is read, so a search that was interrupted goes on."""
    paces = _run_first(request, partial(_run, request, data, workers, watch))

    def workers_of(cell: Cell) -> Workers:
        return workers_for(max((pace.total(cell.experiment) for pace in paces), default=math.inf), workers)

    run = partial(_run, request, data, workers_of, watch)
    for name in request.methods:
        tried: dict[Trial, Tried] = {}
        search = request.search(name)
        proposed = next(search)
        while True:
            new = [trial for trial in dict.fromkeys(proposed) if trial not in tried]
            tried |= _try(request, name, new, run)
            try:
                proposed = search.send({trial: tried[trial].score for trial in dict.fromkeys(proposed)})
            except StopIteration as ended:
                yield _tuned(request, name, tried[ended.value], list(tried.values()))
                break


Run = Callable[[Sequence[Cell], Callable[[Failed], None]], Iterator[Done]]


def _run(
    request: Request,
    data: Path | None,
    workers: Workers | Callable[[Cell], Workers],
    watch: Watch,
    cells: Sequence[Cell],
    failed: Callable[[Failed], None],
) -> Iterator[Done]:
    placed = [beside_longer(cell, request.out / "runs", data) for cell in cells]
    yield from run_cells(placed, data, workers, watch(placed), kept=KeptResults(request.out / CELLS), failed=failed)


def _run_first(request: Request, run: Run) -> list[Pace]:
    """The first run of each method, before there are hours of others': it tells whether the method has the protocol.

    And how long runs take.
    """
    paces = []
    first = [request.cell(name, next(request.search(name))[0], request.seeds[0]) for name in request.methods]
    for cell, result in run(first, lambda failed: None):
        scored = [name for name, value in result["summary"]["accuracy"].items() if value is not None]
        if scored and request.protocol not in scored:
            raise InputError(
                f"--protocol {request.protocol}: method = {cell.experiment.method!r} has no such accuracy here, only "
                f"{', '.join(scored)}."
            )
        paces.append(pace_of(result["summary"]))
    return paces


def _try(request: Request, name: str, trials: Sequence[Trial], run: Run) -> dict[Trial, Tried]:
    found = {trial: Tried(trial, {}) for trial in trials}
    cells: dict[str, Cell] = {}
    trials_of: dict[str, list[Trial]] = {}  # several may be the same experiment, in other words
    for trial in trials:
        for seed in request.seeds:
            cell = request.cell(name, trial, seed)
            cells[cell.experiment.hash] = cell
            trials_of.setdefault(cell.experiment.hash, []).append(trial)

    def fail(cell: Cell, reason: str) -> None:
        for trial in trials_of[cell.experiment.hash]:
            found[trial] = replace(found[trial], failed=reason)

    for cell, result in run(list(cells.values()), lambda failed: fail(failed.cell, str(failed.problem))):
        score = result["summary"]["accuracy"].get(request.protocol)
        if score is None:
            fail(cell, f"no client could be scored by {request.protocol}")
            continue
        for trial in trials_of[cell.experiment.hash]:
            found[trial] = replace(found[trial], values={**found[trial].values, cell.experiment.seed: score})
    return found


def _tuned(request: Request, name: str, chosen: Tried, tried: list[Tried]) -> Tuned:
    """What the same experiment was tried as in other words is told once, by the words that were chosen."""
    if chosen.failed:
        raise RunError(f"{name}: none of {counted(len(tried), 'trial')} came to a result: {chosen.failed}")
    once = {_hash(request, name, one): one for one in tried} | {_hash(request, name, chosen): chosen}
    values = dict(chosen.trial.settings)
    ends = [one.key for one in dimensions_of(name, request.dimensions) if one.values.is_end(values[one.key])]
    return Tuned(name, chosen, tuple(once.values()), tuple(ends))


def _hash(request: Request, name: str, tried: Tried) -> str:
    return request.cell(name, tried.trial, request.seeds[0]).experiment.hash
