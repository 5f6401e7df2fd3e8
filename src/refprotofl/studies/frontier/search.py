"""Successive halving towards a front: all candidates run a few rounds, the better ones go on with three times as many.

Which ones are better is not accuracy alone: those that no other beats both in accuracy and in bytes come first, then
those that only they beat, and so on; among equals, by accuracy. What would go beyond the limit comes last, and what
would go far beyond it is left out.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from refprotofl.core.errors import InputError, RunError
from refprotofl.evaluation.protocols import check_protocol
from refprotofl.federation.resolution import prepare
from refprotofl.federation.session import Callback, Workers
from refprotofl.methods.catalogue import find_method
from refprotofl.studies.cells import Cell, read_name, read_switches
from refprotofl.studies.frontier.candidates import Candidate, Request
from refprotofl.studies.frontier.limits import Sent, sent_by, sent_in
from refprotofl.studies.results import CELLS, KeptResults, Result
from refprotofl.studies.runner import Failed, beside_longer, run_cells
from refprotofl.studies.tune.strategies import Budget, rungs

SLACK = 1.25  # a run that was cut short may seem to send as much more than it will

Watch = Callable[[Sequence[Cell]], Callable[[int, Cell], Callback]]


@dataclass(frozen=True)
class Tried:
    """A candidate, after some of its rounds."""

    candidate: Candidate
    rounds: int
    values: dict[int, float]  # by seed
    sent: Sent  # mean over seeds, of the whole schedule
    share: float  # of what is allowed
    folders: tuple[Path, ...] = ()
    front: bool = False
    failed: str = ""

    @property
    def accuracy(self) -> float:
        return fmean(self.values.values()) if self.values and not self.failed else -math.inf

    @property
    def finished(self) -> bool:
        return self.rounds == self.candidate.schedule.rounds and not self.failed


@dataclass(frozen=True)
class Found:
    tried: tuple[Tried, ...]  # each candidate as far as it came
    winner: Tried | None  # the most accurate within the limit; None where nothing is


def check(request: Request) -> int:
    """Refuses a search that cannot be done; gives the number of candidates."""
    if not request.tried or not request.seeds:
        raise InputError("A search needs a method and a seed.")
    check_protocol(request.protocol)
    names = [read_name(one)[0] for one in request.tried]
    for what, named in (("method", names), ("seed", request.seeds)):
        if len({*named}) < len(named):
            raise InputError(f"A {what} is named twice: {', '.join(map(str, named))}.")
    titles = [one.title for one in request.candidates]
    repeated = sorted({title for title in titles if titles.count(title) > 1})
    if repeated:
        raise InputError(f"Two candidates would be called alike, {', '.join(repeated)}: give them names of their own.")
    for candidate in request.candidates:
        prepare(request.cell(candidate, candidate.schedule.rounds, request.seeds[0]).experiment)
    return len(request.candidates)


def search(request: Request, data: Path | None, workers: Workers, watch: Watch) -> Found:
    left = list(request.candidates)
    least = 3 if any(map(_begins_anew, left)) else 2  # for all of them: nobody is judged by more rounds than others
    tried: dict[Candidate, Tried] = {}
    for share, count in plan(request):
        decides = share == 1 or count < len(left)
        rung = [(one, _rounds(one, share, least)) for one in left if decides or not _begins_anew(one)]
        new = [(one, rounds) for one, rounds in rung if not _is_done(tried.get(one), rounds)]
        for found in _try(request, new, data, workers, watch):
            tried[found.candidate] = found
        left = [one for one in left if one not in tried or _may_go_on(tried[one])]
        if decides:
            order = sorted(ranked(tried[one] for one in left), key=lambda one: one.share > 1)
            left = [one.candidate for one in order[:count]]
    return _found(tried.values())


def _begins_anew(candidate: Candidate) -> bool:
    """A run of fewer rounds cannot be gone on with: where nobody is left behind by it, it would be for nothing."""
    return find_method(read_switches(candidate.method)[0]).depends_on_rounds


def _may_go_on(tried: Tried) -> bool:
    return not tried.failed and tried.share <= SLACK


def plan(request: Request) -> list[tuple[float, int]]:
    """Of each rung: the share of their rounds that candidates run, and how many of them go on at most."""
    longest = max(one.schedule.rounds for one in request.candidates)
    steps = rungs(Budget(longest, len(request.candidates)))
    going_on = [max(request.ends, count) for _, count in steps[1:]] + [len(request.candidates)]
    return [(rounds / longest, count) for (rounds, _), count in zip(steps, going_on, strict=True)]


def ranked(tried: Iterable[Tried]) -> list[Tried]:
    """Front after front, each by accuracy."""
    left, order = list(tried), []
    while left:
        first = front_of(left)
        order += sorted(first, key=lambda one: -one.accuracy)
        left = [one for one in left if one not in first]
    return order


def front_of(tried: Sequence[Tried]) -> list[Tried]:
    """Those that no other beats in one of accuracy and bytes without being worse in the other."""
    return [one for one in tried if not any(_beats(other, one) for other in tried)]


def _beats(one: Tried, other: Tried) -> bool:
    better = one.accuracy >= other.accuracy and one.sent.total <= other.sent.total
    return better and (one.accuracy, one.sent.total) != (other.accuracy, other.sent.total)


def _rounds(candidate: Candidate, share: float, least: int) -> int:
    """One at least that may be like others: the first is often not, and the last is not where it is special."""
    return min(candidate.schedule.rounds, max(least, math.ceil(share * candidate.schedule.rounds - 1e-9)))


def _is_done(before: Tried | None, rounds: int) -> bool:
    return before is not None and before.rounds >= rounds


def _try(
    request: Request, pairs: Sequence[tuple[Candidate, int]], data: Path | None, workers: Workers, watch: Watch
) -> Iterator[Tried]:
    cells = {
        (candidate, seed): request.cell(candidate, rounds, seed)
        for candidate, rounds in pairs
        for seed in request.seeds
    }
    problems: dict[str, str] = {}
    results: dict[str, tuple[Cell, Result]] = {}

    def fail(failed: Failed) -> None:
        problems[failed.cell.experiment.hash] = str(failed.problem)

    once = {cell.experiment.hash: cell for cell in cells.values()}.values()
    planned = [beside_longer(cell, request.out / "runs", data) for cell in once]
    for cell, result in run_cells(
        planned, data, workers, watch(planned), kept=KeptResults(request.out / CELLS), failed=fail
    ):
        results[cell.experiment.hash] = (cell, result)
    for candidate, rounds in pairs:
        own = [cells[candidate, seed] for seed in request.seeds]
        failed = next((problems[one.experiment.hash] for one in own if one.experiment.hash in problems), "")
        done = [] if failed else [results[one.experiment.hash] for one in own]
        yield _tried(request, candidate, rounds, done, failed)


def _tried(
    request: Request, candidate: Candidate, rounds: int, done: Sequence[tuple[Cell, Result]], failed: str
) -> Tried:
    scores = {cell.experiment.seed: result["summary"]["accuracy"].get(request.protocol) for cell, result in done}
    values = {seed: score for seed, score in scores.items() if score is not None}
    if not failed and len(values) < len(scores):
        failed = f"it has no {request.protocol} accuracy"
    if failed:
        return Tried(candidate, rounds, {}, Sent(rounds, 0, 0, 0, 0, 0, 0, 0), math.inf, failed=failed)
    all_sent = [projected(cell, result, candidate.schedule.rounds) for cell, result in done]
    shares = [request.limit.share(sent) for sent in all_sent]
    folders = tuple(cell.folder for cell, _ in done)
    return Tried(candidate, rounds, values, _mean(all_sent), max(shares), folders)


def projected(cell: Cell, result: Result, rounds: int) -> Sent:
    """What a run would send in so many rounds: more like its last one, or, if that is special, like the one before."""
    sent, experiment = sent_by(result["summary"], cell.folder), cell.experiment
    if sent.rounds >= rounds:
        return sent
    usual = sent.rounds - 1 if find_method(experiment.method).depends_on_rounds else sent.rounds
    absent = 1 - experiment.cohort_size / experiment.clients
    return sent.longer(rounds, sent_in(cell.folder, usual), joined=experiment.clients * (1 - absent**rounds))


def _mean(all_sent: Sequence[Sent]) -> Sent:
    first = all_sent[0]
    means = {name: fmean(getattr(one, name) for one in all_sent) for name in vars(first) if name != "rounds"}
    return Sent(first.rounds, **means)


def _found(tried: Iterable[Tried]) -> Found:
    listed = list(tried)
    finished = [one for one in listed if one.finished]
    if all(one.failed for one in listed):
        raise RunError(f"No candidate came to a result. {listed[0].candidate.title}: {listed[0].failed}")
    front = front_of(finished)
    marked = [replace(one, front=one in front) for one in listed]
    allowed = [one for one in marked if one.finished and one.share <= 1]
    ordered = sorted(marked, key=lambda one: (not one.finished, -one.accuracy))
    return Found(tuple(ordered), max(allowed, key=lambda one: one.accuracy, default=None))
