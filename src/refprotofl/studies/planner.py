"""The planner of all studies: it runs their trials, the same experiment once and none that is finished.

A study is a generator. It yields the trials that it needs, receives their outcomes, may yield more, and returns what it
makes of them:

    def best_of(trials: list[Trial]) -> Study[Trial]:
        outcomes = yield trials
        return max(outcomes.results, key=...).trial

    Planner(data=None).conduct(best_of(trials))
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from refprotofl.federation import Callback, Workers
from refprotofl.studies.pool import TrialFailure, TrialResult, WorkerPool, placed_for, processes_for, run_trials
from refprotofl.studies.results import KeptResults, Result, result_of
from refprotofl.studies.timing import Clock, workers_for
from refprotofl.studies.trials import Trial, unique

T = TypeVar("T")


@dataclass(frozen=True)
class Outcomes:
    """The results and failures of trials, by the hash of their experiment."""

    results: dict[str, TrialResult]
    failures: dict[str, TrialFailure]

    def of(self, trials: Sequence[Trial]) -> list[tuple[Trial, Result]]:
        """Return these trials with their results, each in the folder of its run; failed ones are absent."""
        found = [(trial, self.results[trial.hash]) for trial in trials if trial.hash in self.results]
        return [(replace(trial, folder=one.trial.folder), one.result) for trial, one in found]

    def scores(self, trials: Sequence[Trial], protocol: str) -> tuple[dict[int, float], str]:
        """Return the accuracy of these trials by seed, and the reason why one of them has none, if so."""
        failed = next((str(self.failures[one.hash].problem) for one in trials if one.hash in self.failures), "")
        accuracies = {
            trial.experiment.seed: result["summary"]["accuracy"].get(protocol) for trial, result in self.of(trials)
        }
        values = {seed: value for seed, value in accuracies.items() if value is not None}
        unscored = f"no client could be scored by {protocol}" if len(values) < len(accuracies) else ""
        return values, failed or unscored


Study = Generator[Sequence[Trial], Outcomes, T]


class Progress(Protocol):
    """An observer of a batch of trials."""

    def watch(self, trial: Trial) -> Callback:
        """Return the callback of the trial's run."""

    def on_close(self) -> None: ...


class Silent:
    """An observer that does nothing."""

    def __init__(self, trials: Sequence[Trial]) -> None: ...

    def watch(self, trial: Trial) -> Callback:
        return Callback()

    def on_close(self) -> None: ...


class Planner:
    """Runs trials batch by batch, and keeps count of them."""

    def __init__(
        self,
        data: Path | None,
        workers: Workers = 1,
        *,
        kept: KeptResults | None = None,
        progress: Callable[[Sequence[Trial]], Progress] = Silent,
    ) -> None:
        """Results in `kept` count as finished runs."""
        self.planned: set[str] = set()  # hashes of trials
        self.finished: set[str] = set()
        self.reused: set[str] = set()  # of those, finished before
        self.failures: list[TrialFailure] = []
        self._data, self._workers, self._kept, self._progress = data, workers, kept, progress
        self._clock = Clock()

    def conduct(self, study: Study[T], *, stop_at_failure: bool = False) -> T:
        """Run what a study asks for until it returns; with `stop_at_failure`, its first failure is raised."""
        try:
            trials = next(study)
            while True:
                trials = study.send(self.run(trials, stop_at_failure=stop_at_failure))
        except StopIteration as ended:
            returned: T = ended.value
            return returned

    def kept_results(self, trials: Sequence[Trial]) -> dict[str, Result]:
        """Return the kept results of these trials, by hash."""
        if self._kept is None:
            return {}
        found = {trial.hash: self._kept.find(trial, self._data) for trial in trials}
        return {name: result for name, result in found.items() if result is not None}

    def finished_results(self, trials: Sequence[Trial]) -> dict[str, Result]:
        """Return the results of those trials that are kept or have a finished run folder, by hash."""
        found = self.kept_results(trials)
        for trial in unique(trials):
            folder = placed_for(trial, self._data).folder
            if trial.hash not in found and (folder / "summary.json").exists():
                found[trial.hash] = result_of(folder, trial.experiment)
        return found

    def estimate(self, trials: Sequence[Trial], finished: dict[str, Result], report: Callable[[str], None]) -> float:
        """Return the seconds that the unfinished of these trials take in one process of this machine."""
        summaries = {name: result["summary"] for name, result in finished.items()}
        return self._clock.estimate(trials, summaries, self._data, report)

    def processes(self, trials: Sequence[Trial]) -> int:
        """Return how many processes run these trials, as far as their times are known."""
        return 1 + self._helpers(trials)

    def run(self, trials: Sequence[Trial], *, need_folders: bool = False, stop_at_failure: bool = False) -> Outcomes:
        """Run each different experiment among the trials once, unless it is finished.

        `need_folders`: a kept result does not replace a run folder.
        """
        kept = None if need_folders else self._kept
        once = unique(trials)
        outcomes = Outcomes({}, {})
        self.planned |= {trial.hash for trial in once}
        progress = self._progress(once)
        try:
            with WorkerPool(self._helpers(once), once, self._data, kept):
                for one in run_trials(once, self._data, self._workers_of, progress.watch, kept):
                    self._record(outcomes, one, stop_at_failure)
        finally:
            progress.on_close()
        return outcomes

    def _record(self, outcomes: Outcomes, one: TrialResult | TrialFailure, stop_at_failure: bool) -> None:
        if isinstance(one, TrialFailure):
            if stop_at_failure:
                raise one.problem
            outcomes.failures[one.trial.hash] = one
            self.failures.append(one)
            return
        outcomes.results[one.trial.hash] = one
        if one.reused and one.trial.hash not in self.finished:
            self.reused.add(one.trial.hash)
        self.finished.add(one.trial.hash)
        self._clock.learn(one.trial.experiment, one.result["summary"])

    def _workers_of(self, trial: Trial) -> Workers:
        return workers_for(self._clock.seconds(trial.experiment), self._workers)

    def _helpers(self, trials: Sequence[Trial]) -> int:
        """Return how many processes help with short trials; long ones have their own worker processes."""
        if self._workers != "auto" or any(self._workers_of(trial) != 1 for trial in trials):
            return 0
        return processes_for(trials, sum(self._clock.seconds(trial.experiment) for trial in trials))
