"""Rows of a comparison: each method over its seeds, on the same partitions, initial weights and cohorts."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean
from typing import Literal, TypeVar

from refprotofl.evaluation import METRICS, PROTOCOLS
from refprotofl.experiment import Experiment
from refprotofl.methods import create_compressor, find_method
from refprotofl.privacy import Spent
from refprotofl.records import Summary
from refprotofl.report.costs import words
from refprotofl.report.statistics import Estimate, Paired, Spread, Verdict, estimate, holm, paired, spread, verdict
from refprotofl.studies import Point, Result, Trial

Way = Literal["uplink", "downlink", "one_off"]
_Run = TypeVar("_Run")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Difference:
    """The paired difference of a row to the baseline."""

    paired: Paired
    p_holm: float | None  # corrected for the number of differences in the same family
    verdict: Verdict | None = None  # None without a margin
    baseline_verdict: Verdict | None = None  # the verdict of the opposite difference


@dataclass(frozen=True)
class Against:
    """The differences of a row to the baseline."""

    baseline: str
    differences: dict[str, Difference]  # by protocol that both have, with a seed in common
    margin: float | None = None  # of non-inferiority, as a share of 1


@dataclass(frozen=True)
class ToTarget:
    """The rounds, bytes and seconds until an evaluation first reached a target accuracy."""

    target: float
    protocol: str
    reached: dict[int, dict[str, float]]  # rounds, bytes and seconds, by seed
    seeds: int

    def estimate(self, quantity: str) -> Estimate | None:
        """Return the mean over seeds; None unless every seed reached the target."""
        found = [one.get(quantity) for one in self.reached.values()]
        known = [value for value in found if value is not None]
        return estimate(known) if len(known) == self.seeds else None


@dataclass(frozen=True)
class OverSeeds:
    """One row over all seeds; protocols that the method lacks are absent."""

    name: str
    method: str
    share: str  # the parts that its clients share: adapter, full, nothing, or names
    accuracy: dict[str, Estimate]
    values: dict[str, dict[int, float]]  # the accuracies by protocol and seed
    worst: dict[str, float]  # the worst client's accuracy by protocol, mean over seeds
    client_spread: dict[str, float]  # standard deviation over clients by protocol, mean over seeds
    last: dict[str, Estimate]  # of each run's mean over its last evaluations, by protocol
    evaluations: int  # averaged in `last`, which is empty with fewer than 2
    bytes: dict[str, float]  # means: uplink, downlink, one_off and their total; without evaluation
    local_epochs: float  # of all clients, in all rounds and after the last
    steps: float | None  # of the clients' optimisers; None if a run did not count them
    seconds: float
    facts: dict[str, dict[int, float | int | str]]  # reported by the method, by seed
    notes: tuple[str, ...]  # differences to the published method
    runs: tuple[str, ...]  # the folders
    metrics: dict[str, dict[str, Estimate]] = field(default_factory=dict)  # by protocol and name, accuracy included
    asked: str = ""  # the method with its switches, if the name is another
    privacy: Spent | None = None  # the largest epsilon of all seeds, if anything is protected
    against: Against | None = None  # None for the baseline itself
    to_target: ToTarget | None = None  # if one was asked for
    bytes_by_seed: dict[str, dict[int, int]] = field(default_factory=dict)  # as `bytes`, without their total
    validation: float = 0.0  # share of their samples that clients held out and were scored on; 0: the test set
    subset: int | None = None  # of the test samples, where evaluations before the last round did not score all
    protocol: str = ""  # the table leads with it, if one was asked for


def tabulate(results: Sequence[tuple[Trial, Result]], last: int = 3) -> list[OverSeeds]:
    """Return a row for each name; the `last` evaluations are averaged, or as many as all runs have."""
    by_name: dict[str, list[tuple[Trial, Result]]] = {}
    for trial, result in results:
        by_name.setdefault(trial.name, []).append((trial, result))
    evaluations = min([last, *(len(result["curve"]) for _, result in results)])
    return [_over_seeds(name, runs, evaluations) for name, runs in by_name.items()]


def against(rows: Sequence[OverSeeds], baseline: str, margin: float | None = None) -> list[OverSeeds]:
    """Return the rows with their paired differences to the baseline; p-values are corrected by protocol.

    With a margin each difference has a verdict, too.
    """
    base = {row.name: row for row in rows}[baseline]
    others = [row for row in rows if row is not base]
    found: dict[str, dict[str, Difference]] = {row.name: {} for row in others}
    for protocol in base.values:
        pairs = {row.name: paired(row.values.get(protocol, {}), base.values[protocol]) for row in others}
        known = {name: pair for name, pair in pairs.items() if pair is not None}
        for (name, pair), p_holm in zip(known.items(), holm([pair.p for pair in known.values()]), strict=True):
            found[name][protocol] = _difference(pair, p_holm, margin)
    return [replace(row, against=None if row is base else Against(baseline, found[row.name], margin)) for row in rows]


def all_pairs(
    rows: Sequence[OverSeeds], protocol: str, margin: float | None = None
) -> dict[tuple[str, str], Difference]:
    """Return the difference of each row to each other, by their names, where the two have a seed in common.

    Both directions of a pair share one p-value, corrected for the number of unordered pairs.
    """
    values = {row.name: row.values.get(protocol, {}) for row in rows}
    pairs = {(one, other): paired(values[one], values[other]) for one, other in combinations(values, 2)}
    known = {names: pair for names, pair in pairs.items() if pair is not None}
    found = {}
    for ((one, other), pair), p_holm in zip(known.items(), holm([pair.p for pair in known.values()]), strict=True):
        found[one, other] = _difference(pair, p_holm, margin)
        found[other, one] = _difference(pair.opposite, p_holm, margin)
    return found


def _difference(pair: Paired, p_holm: float | None, margin: float | None) -> Difference:
    if margin is None:
        return Difference(pair, p_holm)
    return Difference(pair, p_holm, verdict(pair, margin), verdict(pair.opposite, margin))


def headline(rows: Sequence[OverSeeds]) -> str:
    """Return the protocol that the table leads with: the one asked for, else `global` if all rows have it."""
    if rows and rows[0].protocol:
        return rows[0].protocol
    return "global" if all("global" in row.accuracy for row in rows) else "personal"


def shared_protocols(rows: Sequence[OverSeeds]) -> list[str]:
    """Return the protocols that all rows have, in the order in which they are declared."""
    return [protocol for protocol in PROTOCOLS if all(protocol in row.accuracy for row in rows)]


def with_two_models(rows: Sequence[OverSeeds]) -> list[str]:
    """Return the names of rows whose clients end with models that differ from the aggregated one."""
    return [row.name for row in rows if scores_differ(row, "global", "personal")]


def scores_differ(row: OverSeeds, one: str, other: str) -> bool:
    """Return whether a row has both protocols and their means differ by more than a rounding error."""
    found, known = row.accuracy.get(one), row.accuracy.get(other)
    return found is not None and known is not None and not math.isclose(found.mean, known.mean, rel_tol=1e-9)


def _over_seeds(name: str, runs: list[tuple[Trial, Result]], evaluations: int) -> OverSeeds:
    summaries = {trial.experiment.seed: result["summary"] for trial, result in runs}
    curves = [result["curve"] for _, result in runs]
    accuracies = _by_protocol(summaries.values(), lambda summary, protocol: summary["accuracy"].get(protocol))
    spreads = _by_protocol(summaries.values(), _spread)
    ends = _by_protocol(curves, lambda curve, protocol: _mean_at_end(curve, protocol, evaluations))
    ran = Experiment.parse(runs[0][1]["summary"]["experiment"])
    method = find_method(ran.method)
    facts = dict.fromkeys(fact for summary in summaries.values() for fact in summary.get("facts", {}))
    return OverSeeds(
        name=name,
        method=ran.method,
        asked=runs[0][0].asked,
        share=words(method.shared(ran)),
        validation=ran.validation,
        accuracy={protocol: estimate(found) for protocol, found in accuracies.items()},
        values={protocol: dict(zip(summaries, found, strict=True)) for protocol, found in accuracies.items()},
        worst={protocol: fmean(one.worst for one in found) for protocol, found in spreads.items()},
        client_spread={protocol: fmean(one.deviation for one in found) for protocol, found in spreads.items()},
        last={protocol: estimate(found) for protocol, found in ends.items()},
        evaluations=evaluations,
        subset=max((point["subset"] for curve in curves for point in curve if "subset" in point), default=None),
        bytes_by_seed=_bytes_by_seed(summaries),
        bytes=_bytes(summaries.values()),
        local_epochs=fmean(_epochs(summary) for summary in summaries.values()),
        steps=_steps(summaries.values()),
        seconds=fmean(summary["seconds"]["total"] for summary in summaries.values()),
        facts={
            fact: {seed: found["facts"][fact] for seed, found in summaries.items() if fact in found.get("facts", {})}
            for fact in facts
        },
        notes=(*method.notes, *create_compressor(ran).notes),
        runs=tuple(str(trial.folder) for trial, _ in runs),
        metrics=_metrics(summaries.values()),
        privacy=_privacy(summaries.values()),
    )


def to_target(runs: Sequence[tuple[Trial, Result]], protocol: str, target: float) -> ToTarget:
    """Return what one row's runs took until the target, by the first evaluation of each run that reached it."""
    reached: dict[int, dict[str, float]] = {}
    for trial, result in runs:
        point = next((one for one in result["curve"] if (one["accuracy"].get(protocol) or 0.0) >= target), None)
        if point is not None:
            time = {"seconds": point["seconds"]} if "seconds" in point else {}
            reached[trial.experiment.seed] = {"rounds": point["round"], "bytes": point["bytes"], **time}
    return ToTarget(target, protocol, reached, len(runs))


def _privacy(summaries: Collection[Summary]) -> Spent | None:
    """Return the largest epsilon of all seeds, whose partitions differ; unbounded is the largest."""
    found = [summary["privacy"] for summary in summaries if "privacy" in summary]
    return max(found, key=lambda one: math.inf if one["epsilon"] is None else one["epsilon"], default=None)


def _by_protocol(runs: Collection[_Run], value: Callable[[_Run, str], _Value | None]) -> dict[str, list[_Value]]:
    """Return a value of each run, by the protocols that all runs have."""
    found = {protocol: [value(run, protocol) for run in runs] for protocol in PROTOCOLS}
    known = {protocol: [one for one in values if one is not None] for protocol, values in found.items()}
    return {protocol: values for protocol, values in known.items() if len(values) == len(runs)}


def _metrics(summaries: Collection[Summary]) -> dict[str, dict[str, Estimate]]:
    """Return estimates over seeds by protocol and metric, for the metrics that every run has."""
    runs = [summary.get("metrics", {}) for summary in summaries]
    found: dict[str, dict[str, Estimate]] = {}
    for protocol in PROTOCOLS:
        of_runs = [run.get(protocol, {}) for run in runs]
        known = [name for name in METRICS if all(name in one for one in of_runs)]
        found[protocol] = {name: estimate([one[name] for one in of_runs]) for name in known}
    return {protocol: estimates for protocol, estimates in found.items() if estimates}


def _spread(summary: Summary, protocol: str) -> Spread | None:
    return spread(summary["accuracy_per_client"].get(protocol, []))


def _mean_at_end(curve: list[Point], protocol: str, evaluations: int) -> float | None:
    if evaluations < 2:
        return None
    found = [point["accuracy"].get(protocol) for point in curve[-evaluations:]]
    known = [value for value in found if value is not None]
    return fmean(known) if len(known) == len(found) else None


def _bytes(summaries: Collection[Summary]) -> dict[str, float]:
    traffic = [summary["communication"] for summary in summaries]
    means = {
        "uplink": fmean(one["uplink"]["payload_bytes"] for one in traffic),
        "downlink": fmean(one["downlink"]["payload_bytes"] for one in traffic),
        "one_off": fmean(one["one_off"]["payload_bytes"] for one in traffic),
    }
    return {**means, "total": sum(means.values())}


def _bytes_by_seed(summaries: Mapping[int, Summary]) -> dict[str, dict[int, int]]:
    """Return the bytes of each run by direction and seed."""
    sent = {seed: summary["communication"] for seed, summary in summaries.items()}
    ways: tuple[Way, ...] = ("uplink", "downlink", "one_off")
    return {way: {seed: one[way]["payload_bytes"] for seed, one in sent.items()} for way in ways}


def _epochs(summary: Summary) -> int:
    ran = Experiment.parse(summary["experiment"])
    method = find_method(ran.method)
    passes = summary["rounds_done"] * ran.clients if method.pooled else summary["full_model"]["participations"]
    alone = ran.finetune.passes
    joined = summary["communication"]["one_off"]["messages"] // 2 if alone else 0  # a request and its answer
    return passes * method.local_epochs(ran) + min(ran.clients, joined) * alone


def _steps(summaries: Collection[Summary]) -> float | None:
    counted = [summary.get("steps") for summary in summaries]
    known = [steps for steps in counted if steps is not None]
    return fmean(known) if len(known) == len(counted) else None
