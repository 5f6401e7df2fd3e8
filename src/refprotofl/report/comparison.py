"""Several methods on the same partitions, initial weights and cohorts, each a row over its seeds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from refprotofl.evaluation.protocols import PROTOCOLS
from refprotofl.experiment import Experiment
from refprotofl.grids.cells import Cell
from refprotofl.grids.results import Result
from refprotofl.methods.catalogue import find_method
from refprotofl.records.summary import Summary
from refprotofl.report.costs import words
from refprotofl.report.statistics import Estimate, estimate


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


def tabulate(results: Sequence[tuple[Cell, Result]]) -> list[OverSeeds]:
    by_name: dict[str, list[tuple[Cell, Result]]] = {}
    for cell, result in results:
        by_name.setdefault(cell.name, []).append((cell, result))
    return [_over_seeds(name, runs) for name, runs in by_name.items()]


def _over_seeds(name: str, runs: list[tuple[Cell, Result]]) -> OverSeeds:
    summaries = {cell.experiment.seed: result["summary"] for cell, result in runs}
    values = {protocol: _known(summaries, protocol) for protocol in PROTOCOLS}
    values = {protocol: known for protocol, known in values.items() if len(known) == len(summaries)}
    ran = Experiment.parse(runs[0][1]["summary"]["experiment"])
    method = find_method(ran.method)
    facts = dict.fromkeys(fact for summary in summaries.values() for fact in summary.get("facts", {}))
    return OverSeeds(
        name=name,
        share=words(method.shared(ran)),
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
