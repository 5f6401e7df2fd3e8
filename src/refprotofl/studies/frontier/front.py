"""Successive halving towards a Pareto front: all candidates run a few rounds, the better ones three times as many.

Candidates are ranked by non-dominated sorting on accuracy and bytes; within a front, by accuracy. Those that would
exceed the limit come last, and those that would exceed it by far are left out.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from refprotofl.core import InputError, RunError, size
from refprotofl.evaluation import check_protocol
from refprotofl.federation import prepare
from refprotofl.methods import depends_on_rounds
from refprotofl.studies.frontier.candidates import Candidate, Request
from refprotofl.studies.frontier.limits import Sent, least_sent, sent_by, sent_in
from refprotofl.studies.planner import Outcomes, Study
from refprotofl.studies.results import Result
from refprotofl.studies.rows import check_rows
from refprotofl.studies.trials import Trial
from refprotofl.studies.tune.strategies import Budget, rungs

SLACK = 1.25  # by which the projected bytes of a short run may exceed those of the whole one


@dataclass(frozen=True)
class CandidateResult:
    """The result of a candidate after some of its rounds."""

    candidate: Candidate
    rounds: int
    values: dict[int, float]  # by seed
    sent: Sent  # mean over seeds, projected to the whole schedule
    share: float  # of the limit
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
class Frontier:
    """The results of a search; each candidate with the most rounds that it ran."""

    tried: tuple[CandidateResult, ...]
    winner: CandidateResult | None  # the most accurate one within the limit, if any


def check(request: Request) -> int:
    """Refuse a search that cannot be done; return the number of candidates."""
    check_rows(request.rows, request.seeds)
    check_protocol(request.protocol)
    titles = [one.title for one in request.candidates]
    repeated = sorted({title for title in titles if titles.count(title) > 1})
    if repeated:
        raise InputError(
            f"Two candidates would have the same name, {', '.join(repeated)}: name them with NAME = METHOD."
        )
    if all(_is_hopeless(request, candidate) for candidate in request.candidates):
        least = min(_least(request, candidate).total for candidate in request.candidates)
        raise InputError(
            f"A limit of {request.limit.words} is too small for any candidate: its messages alone, even "
            f"empty, take {size(least)}. Sizes may have a unit, such as '10 MB'."
        )
    for candidate in request.candidates:
        prepare(request.trial(candidate, candidate.schedule.rounds, request.seeds[0]).experiment)
    return len(request.candidates)


def frontier(request: Request) -> Study[Frontier]:
    """Search rung by rung."""
    left = [one for one in request.candidates if not _is_hopeless(request, one)]
    anew = {one for one in left if _starts_anew(request, one)}
    least = 3 if anew else 2  # the same for all candidates
    tried = {one: _hopeless(request, one) for one in request.candidates if one not in left}
    for share, count in plan(request):
        decides = share == 1 or count < len(left)
        rung = {one: _rounds(one, share, least) for one in left if decides or one not in anew}
        new = {one: rounds for one, rounds in rung.items() if not _is_done(tried.get(one), rounds)}
        trials = {one: [request.trial(one, rounds, seed) for seed in request.seeds] for one, rounds in new.items()}
        outcomes = yield [trial for some in trials.values() for trial in some]
        tried |= {one: candidate_result(request, one, new[one], some, outcomes) for one, some in trials.items()}
        left = [one for one in left if one not in tried or _may_continue(tried[one])]
        if decides:
            order = sorted(ranked(tried[one] for one in left), key=lambda one: one.share > 1)
            left = [one.candidate for one in order[:count]]
    return _frontier(tried.values())


def _least(request: Request, candidate: Candidate) -> Sent:
    return least_sent(candidate.schedule.rounds, request.experiment.cohort_size)


def _is_hopeless(request: Request, candidate: Candidate) -> bool:
    """Return whether a candidate exceeds the limit whatever its messages hold."""
    return request.limit.share(_least(request, candidate)) > 1


def _hopeless(request: Request, candidate: Candidate) -> CandidateResult:
    least = _least(request, candidate)
    reason = f"not run: its messages alone, even empty, exceed {request.limit.words}"
    return CandidateResult(candidate, 0, {}, least, math.inf, failed=reason)


def _starts_anew(request: Request, candidate: Candidate) -> bool:
    """Return whether a run cannot resume with more rounds: it skips rungs that eliminate no candidate."""
    return depends_on_rounds(request.trial(candidate, candidate.schedule.rounds, request.seeds[0]).experiment)


def _may_continue(tried: CandidateResult) -> bool:
    return not tried.failed and tried.share <= SLACK


def plan(request: Request) -> list[tuple[float, int]]:
    """Return, of each rung, the share of the rounds that candidates run and the most candidates that continue."""
    longest = max(one.schedule.rounds for one in request.candidates)
    steps = rungs(Budget(longest, len(request.candidates)))
    continuing = [max(request.ends, count) for _, count in steps[1:]] + [len(request.candidates)]
    return [(rounds / longest, count) for (rounds, _), count in zip(steps, continuing, strict=True)]


def ranked(tried: Iterable[CandidateResult]) -> list[CandidateResult]:
    """Sort results front after front, each by accuracy."""
    left, order = list(tried), []
    while left:
        first = front_of(left)
        order += sorted(first, key=lambda one: -one.accuracy)
        left = [one for one in left if one not in first]
    return order


def front_of(tried: Sequence[CandidateResult]) -> list[CandidateResult]:
    """Return the results that no other dominates in accuracy and bytes."""
    return [one for one in tried if not any(_dominates(other, one) for other in tried)]


def _dominates(one: CandidateResult, other: CandidateResult) -> bool:
    better = one.accuracy >= other.accuracy and one.sent.total <= other.sent.total
    return better and (one.accuracy, one.sent.total) != (other.accuracy, other.sent.total)


def _rounds(candidate: Candidate, share: float, least: int) -> int:
    """Return the rounds of a rung: enough that one is typical, as a first round and thin's last one are not."""
    return min(candidate.schedule.rounds, max(least, math.ceil(share * candidate.schedule.rounds - 1e-9)))


def _is_done(before: CandidateResult | None, rounds: int) -> bool:
    return before is not None and before.rounds >= rounds


def candidate_result(
    request: Request, candidate: Candidate, rounds: int, trials: Sequence[Trial], outcomes: Outcomes
) -> CandidateResult:
    values, failed = outcomes.scores(trials, request.protocol)
    if failed:
        return CandidateResult(candidate, rounds, {}, Sent(rounds, 0, 0, 0, 0, 0, 0, 0), math.inf, failed=failed)
    done = outcomes.of(trials)
    all_sent = [projected(trial, result, candidate.schedule.rounds) for trial, result in done]
    shares = [request.limit.share(sent) for sent in all_sent]
    folders = tuple(trial.folder for trial, _ in done)
    return CandidateResult(candidate, rounds, values, _mean(all_sent), max(shares), folders)


def projected(trial: Trial, result: Result, rounds: int) -> Sent:
    """Return the traffic of a run with `rounds` rounds: further ones are like its last typical round."""
    sent, experiment = sent_by(result["summary"], trial.folder), trial.experiment
    if sent.rounds >= rounds:
        return sent
    usual = sent.rounds - 1 if depends_on_rounds(experiment) else sent.rounds
    absent = 1 - experiment.cohort_size / experiment.clients
    return sent.longer(rounds, sent_in(trial.folder, usual), joined=experiment.clients * (1 - absent**rounds))


def _mean(all_sent: Sequence[Sent]) -> Sent:
    first = all_sent[0]
    means = {name: fmean(getattr(one, name) for one in all_sent) for name in vars(first) if name != "rounds"}
    return Sent(first.rounds, **means)


def _frontier(tried: Iterable[CandidateResult]) -> Frontier:
    listed = list(tried)
    finished = [one for one in listed if one.finished]
    if all(one.failed for one in listed):
        raise RunError(f"No candidate finished. {listed[0].candidate.title}: {listed[0].failed}")
    front = front_of(finished)
    marked = [replace(one, front=one in front) for one in listed]
    allowed = [one for one in marked if one.finished and one.share <= 1]
    ordered = sorted(marked, key=lambda one: (not one.finished, -one.accuracy))
    return Frontier(tuple(ordered), max(allowed, key=lambda one: one.accuracy, default=None))
