"""Results of a block, row by row: statistics over seeds, and records of plain numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from refprotofl.records import fedavg_bytes
from refprotofl.report import Estimate, OverSeeds, tabulate
from refprotofl.report.comparable import check_comparable
from refprotofl.report.comparison import against
from refprotofl.studies.reproduce.studies import Block, Grid, Results, Row, Study
from refprotofl.studies.reproduce.verdicts import Setting, points_to_paper, verdict
from refprotofl.studies.results import Result

MEGABYTE = 1_000_000
NEAR = 0.01  # how far accuracy may lie below a reference's for its bytes to be compared
NEGLIGIBLE = 1e-4  # share of FedAvg's bytes below which points per megabyte are not given


@dataclass(frozen=True)
class Read:
    """A block with the results of its rows."""

    grid: Grid
    study: Study
    block: Block
    rows: dict[str, OverSeeds]  # by label; a row without a finished run is absent
    results: dict[str, tuple[Result, ...]]

    def estimate(self, row: Row) -> Estimate | None:
        """Estimate the headline's accuracy; None if no run is finished or the method does not have the protocol."""
        return self.rows[row.label].accuracy.get(self.study.protocol) if row.label in self.rows else None

    def values(self, row: Row) -> dict[int, float]:
        """The headline's accuracy by seed."""
        return self.rows[row.label].values.get(self.study.protocol, {}) if row.label in self.rows else {}

    def missing(self, row: Row) -> int:
        """Count the runs that were asked for and are not finished."""
        return len(self.grid.seeds) - len(self.results.get(row.label, ()))

    def count(self, row: Row) -> str:
        """Format the number of finished seeds, such as `2 of 3`."""
        asked = len(self.grid.seeds)
        return f"{asked - self.missing(row)} of {asked}" if self.missing(row) else str(asked)

    def tuned(self, row: Row) -> tuple[str, ...]:
        return self.grid.tuned_of(self.study, self.block, row)

    def at_an_end(self, row: Row) -> tuple[str, ...]:
        """Those of the tuned settings that are at an end of their grid."""
        return self.grid.at_an_end(self.study, self.block, row)

    def setting(self, row: Row) -> Setting:
        """Return the row's setting relative to the paper's, which did not use settings of our searches."""
        return "changed" if self.grid.setting == "paper's" and self.tuned(row) else self.grid.setting

    @property
    def baseline(self) -> str:
        """The label of the row that the others are paired with: the grid's, the study's, or the first that there is."""
        wanted = (self.grid.against, self.study.baseline)
        return next((label for label in (*wanted, *self.rows) if label in self.rows), self.study.baseline)

    @property
    def cheapest(self) -> str | None:
        """The reference with the fewest bytes whose accuracy is within a point of the first's, paired by seed."""
        known = {label: self.rows[label] for label in self.study.references if label in self.rows}
        scores = {label: row.values.get(self.study.protocol, {}) for label, row in known.items()}
        first = scores.get(self.study.references[0], {}) if self.study.references else {}
        near = [label for label, values in scores.items() if first and _is_near(values, first)]
        return min(near, key=lambda label: known[label].bytes["total"], default=None)

    def share_of(self, row: Row, label: str | None) -> float | None:
        """Return all bytes of a row divided by those of another."""
        known, other = self.rows.get(row.label), self.rows.get(label or "")
        return known.bytes["total"] / other.bytes["total"] if known and other and other.bytes["total"] else None

    @property
    def plain_model(self) -> int:
        """Parameters of the model without those that a method such as VHL adds: the minimum over all runs."""
        return min(one["summary"]["full_model"]["parameters"] for found in self.results.values() for one in found)


def read_study(grid: Grid, study: Study, results: Results, last: int) -> list[Read]:
    """Read a study's results; raise if runs are not comparable. `last` final evaluations are averaged as well."""
    return [_read_block(grid, study, block, results, last) for block in study.blocks]


def _read_block(grid: Grid, study: Study, block: Block, results: Results, last: int) -> Read:
    done = list(grid.done(study, block, results))
    by_label: dict[str, tuple[Result, ...]] = {}
    for cell, result in done:
        by_label[cell.name] = (*by_label.get(cell.name, ()), result)
    check_comparable([result for _, result in done], allowed=grid.may_differ(study, block))
    read = Read(grid, study, block, {row.name: row for row in tabulate(done, last)}, by_label)
    paired = against(list(read.rows.values()), read.baseline, grid.margin) if read.rows else []
    return replace(read, rows={row.name: row for row in paired})


def record(read: Read, row: Row) -> dict[str, Any]:
    """Return a row as plain numbers: fractions of 1 and bytes; percent only for the paper's values."""
    protocol, block, found = read.study.protocol, read.block, read.estimate(row)
    values: dict[str, Any] = {
        **{"dataset": block.dataset, "alpha": block.alpha, "method": row.label, "asked": row.asked},
        **{
            "tuned": "; ".join(read.tuned(row)),
            "at_an_end": "; ".join(read.at_an_end(row)),
            "protocol": protocol,
            "paper": row.paper,
        },
        **{"seeds": len(read.grid.seeds) - read.missing(row), "missing_seeds": read.missing(row)},
    }
    if row.label not in read.rows:
        return values
    if found is not None:
        values |= _accuracy(read.rows[row.label], protocol)
    if found is not None and row.paper is not None:
        values |= {"points_to_paper": points_to_paper(found, row.paper)}
        values |= {"paper_verdict": verdict(found, row.paper, read.setting(row))}
    known = read.rows[row.label]
    others = {name: one.mean for name, one in known.accuracy.items() if name != protocol}
    return values | others | _traffic(read, row) | _effort(known)


def _accuracy(known: OverSeeds, protocol: str) -> dict[str, Any]:
    found, last = known.accuracy[protocol], known.last.get(protocol)
    difference = known.against.differences.get(protocol) if known.against else None
    pair = difference.paired if difference else None
    return {
        "mean": found.mean,
        "half_width": found.half_width,
        "against": known.against.baseline if known.against else None,
        "difference": pair.mean if pair else None,
        "difference_half_width": pair.half_width if pair else None,
        "p": pair.p if pair else None,
        "p_holm": difference.p_holm if difference else None,
        "pairs": pair.count if pair else None,
        "margin": known.against.margin if known.against else None,
        "verdict": difference.verdict if difference else None,
        "baseline_verdict": difference.baseline_verdict if difference else None,
        "last_evaluations": last.mean if last else None,
        "worst_client": known.worst.get(protocol),
        "spread_over_clients": known.client_spread.get(protocol),
        **{f"seed_{seed}": value for seed, value in known.values[protocol].items()},
    }


def _traffic(read: Read, row: Row) -> dict[str, Any]:
    known, results, found = read.rows[row.label], read.results[row.label], read.estimate(row)
    sent = [result["summary"]["communication"] for result in results]
    total, fedavg = known.bytes["total"], _fedavg_bytes(read.plain_model, results)
    share = total / fedavg if fedavg else None
    bought = found is not None and share is not None and share > NEGLIGIBLE
    return {
        **{f"{name}_bytes": value for name, value in known.bytes.items()},
        "share_of_fedavg": share,
        **_of_references(read, row),
        "parameters_up": fmean(one["uplink"]["parameters"] for one in sent),
        "parameters_down": fmean(one["downlink"]["parameters"] for one in sent),
        "prototype_values_up": fmean(one["uplink"]["prototype_values"] for one in sent),
        "prototype_values_down": fmean(one["downlink"]["prototype_values"] for one in sent),
        "messages": fmean(sum(one[way]["messages"] for way in ("uplink", "downlink", "one_off")) for one in sent),
        "points_per_megabyte": 100 * found.mean / (total / MEGABYTE) if found and bought else None,
    }


def _is_near(values: Mapping[int, float], first: Mapping[int, float]) -> bool:
    """Return True if accuracy is at most `NEAR` below the first's; needs all seeds of the first."""
    return values.keys() >= first.keys() and fmean(values[seed] - first[seed] for seed in first) >= -NEAR


def _of_references(read: Read, row: Row) -> dict[str, Any]:
    if not read.study.references:
        return {}
    first, cheapest = read.study.references[0], read.cheapest
    return {
        **{"reference": first, "share_of_reference": read.share_of(row, first)},
        **{"cheapest_reference": cheapest, "share_of_cheapest": read.share_of(row, cheapest)},
    }


def _fedavg_bytes(parameters: int, results: Sequence[Result]) -> float:
    """Return the bytes of uncompressed FedAvg of a model with this many parameters, in both directions."""
    return fmean(sum(fedavg_bytes(result["summary"], parameters)) for result in results)


def _effort(known: OverSeeds) -> dict[str, Any]:
    return {"local_epochs": known.local_epochs, "steps": known.steps, "seconds": known.seconds}
