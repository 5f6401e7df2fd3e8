"""A search for each of several methods, on the same data and with the same budget."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean

from refprotofl.core import InputError, RunError, counted
from refprotofl.evaluation import check_protocol
from refprotofl.experiment import Experiment
from refprotofl.experiment.configuration import VALIDATION
from refprotofl.federation import prepare
from refprotofl.studies.planner import Study
from refprotofl.studies.rows import Row, check_rows, read_row
from refprotofl.studies.trials import Base, Trial, rung
from refprotofl.studies.tune.space import Dimension, dimensions_of, refuse_unusable
from refprotofl.studies.tune.strategies import STRATEGIES, Budget, Configuration, Search


@dataclass(frozen=True)
class Request:
    """The methods, keys and values of a search, and the experiment that it starts from."""

    base: Base
    methods: tuple[str, ...]  # with their switches
    dimensions: tuple[Dimension, ...]
    strategy: str
    trials: int  # of strategies that draw
    seeds: tuple[int, ...]
    protocol: str
    out: Path

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment of the first method and seed, without anything that is searched."""
        return self._validated.experiment(row_of(self.methods[0]), self.seeds[0])

    @cached_property
    def _validated(self) -> Base:
        """The base with validation data held out: a search never scores the test set."""
        first = self.base.experiment(row_of(self.methods[0]), self.seeds[0])
        return self.base if first.validation else self.base.under(f"validation={VALIDATION}")

    def search(self, method: str) -> Search:
        budget = Budget(self.experiment.rounds, self.trials)
        return STRATEGIES[self.strategy](dimensions_of(method, self.dimensions), budget)

    def trial(self, method: str, configuration: Configuration, seed: int) -> Trial:
        base = self._validated.under(f"rounds={configuration.rounds}")
        trial = base.trial(row_of(method, configuration.typed), seed, self.out / "runs")
        return rung(trial, self.experiment.rounds)

    def over_seeds(self, method: str, configuration: Configuration) -> list[Trial]:
        return [self.trial(method, configuration, seed) for seed in self.seeds]


def row_of(method: str, settings: Sequence[str] = ()) -> Row:
    """Return the row of a method with these settings."""
    return Row(":".join([method, *settings]), method, tuple(settings))


@dataclass(frozen=True)
class ConfigurationResult:
    """The scores of a configuration."""

    configuration: Configuration
    values: dict[int, float]  # by seed
    failed: str = ""  # the reason, if a run failed

    @property
    def score(self) -> float:
        return -math.inf if self.failed else fmean(self.values.values())


@dataclass(frozen=True)
class SearchResult:
    """The search of one method."""

    method: str
    chosen: ConfigurationResult
    tried: tuple[ConfigurationResult, ...]  # each experiment once
    at_an_end: tuple[str, ...]  # keys whose chosen value is the first or last of those allowed


def check(request: Request) -> int:
    """Refuse a search that cannot be done, or not with the same budget for all; return the trials of each method."""
    if not request.dimensions:
        raise InputError("A search needs a key and its values: --search train.lr=0.01,0.1.")
    for one in request.methods:
        if read_row(one).name != one:
            raise InputError(f"{one}: remove the name; a search writes its results by method.")
    check_rows([Row(one, one) for one in request.methods], request.seeds)
    check_protocol(request.protocol)
    refuse_unusable(request.dimensions, request.methods)
    counts = {method: len(_planned(request, method)) for method in request.methods}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{method} {count}" for method, count in counts.items())
        raise InputError(
            f"Every method gets the same budget, but the numbers of different trials would be: {listed}. "
            "Give a method another key or more values with --search METHOD@key=values; repeated draws are more "
            "frequent in a short list of values than in a range."
        )
    return next(iter(counts.values()))


def _planned(request: Request, method: str) -> set[str]:
    """Return the hashes of the experiments that the search runs if all scores are equal."""
    found: set[str] = set()
    search = request.search(method)
    proposed = next(search)
    while True:
        for configuration in proposed:
            trial = request.trial(method, configuration, request.seeds[0])
            prepare(trial.experiment)  # a user's method checks its options here
            found.add(trial.hash)
        try:
            proposed = search.send(dict.fromkeys(proposed, 0.0))
        except StopIteration:
            return found


def first_runs(request: Request) -> Study[None]:
    """Run each method once, before hours are spent on the others: InputError if one lacks the protocol."""
    trials = [request.trial(method, next(request.search(method))[0], request.seeds[0]) for method in request.methods]
    outcomes = yield trials
    for trial, result in outcomes.of(trials):
        scored = [name for name, value in result["summary"]["accuracy"].items() if value is not None]
        if scored and request.protocol not in scored:
            raise InputError(
                f"--protocol {request.protocol}: method = {trial.experiment.method!r} has no such accuracy here, only "
                f"{', '.join(scored)}."
            )


def tune(request: Request, method: str) -> Study[SearchResult]:
    """Search one method. Finished trials are read, so an interrupted search resumes."""
    tried: dict[Configuration, ConfigurationResult] = {}
    search = request.search(method)
    proposed = next(search)
    while True:
        new = [one for one in dict.fromkeys(proposed) if one not in tried]
        trials = {one: request.over_seeds(method, one) for one in new}
        outcomes = yield [trial for some in trials.values() for trial in some]
        tried |= {
            one: ConfigurationResult(one, *outcomes.scores(some, request.protocol)) for one, some in trials.items()
        }
        try:
            proposed = search.send({one: tried[one].score for one in dict.fromkeys(proposed)})
        except StopIteration as ended:
            return _search_result(request, method, tried[ended.value], list(tried.values()))


def _search_result(
    request: Request, method: str, chosen: ConfigurationResult, tried: list[ConfigurationResult]
) -> SearchResult:
    """Configurations that are the same experiment are listed once, as the chosen one if it is among them."""
    if chosen.failed:
        raise RunError(f"{method}: none of {counted(len(tried), 'trial')} finished: {chosen.failed}")
    once = {_hash(request, method, one): one for one in tried} | {_hash(request, method, chosen): chosen}
    values = dict(chosen.configuration.settings)
    ends = [one.key for one in dimensions_of(method, request.dimensions) if one.values.is_end(values[one.key])]
    return SearchResult(method, chosen, tuple(once.values()), tuple(ends))


def _hash(request: Request, method: str, one: ConfigurationResult) -> str:
    return request.trial(method, one.configuration, request.seeds[0]).hash
