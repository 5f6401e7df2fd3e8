"""What came of a block's runs, row by row: as rows over seeds, and as plain numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from refprotofl.grids.choices import read_switches
from refprotofl.grids.results import Result
from refprotofl.grids.running import Done
from refprotofl.report.comparable import check_comparable
from refprotofl.report.comparison import OverSeeds, against, tabulate
from refprotofl.reproduction.studies import Block, Row, Study

MEGABYTE = 1_000_000
SEARCHED = ("train.lr", "train.weight-decay")  # keys of all methods that a search may choose


@dataclass(frozen=True)
class Read:
    """A block with what is known of its rows."""

    study: Study
    block: Block
    seeds: tuple[int, ...]  # that were asked for
    rows: dict[str, OverSeeds]  # by label; a row without a finished run is absent
    results: dict[str, tuple[Result, ...]]

    def values(self, row: Row) -> dict[int, float]:
        """The headline's accuracy by seed."""
        return self.rows[row.label].values[self.study.protocol] if self.has(row.label) else {}

    def has(self, label: str) -> bool:
        return label in self.rows and self.study.protocol in self.rows[label].accuracy

    def count(self, row: Row) -> str:
        """How many seeds there are, and of how many."""
        known, asked = len(self.values(row)), len(self.seeds)
        return str(known) if known == asked else f"{known} of {asked}"

    @property
    def baseline(self) -> str:
        """The label of the row that the others are paired with: the study's, or the first that there is."""
        return self.study.baseline if self.study.baseline in self.rows else next(iter(self.rows), "")


def read_block(study: Study, block: Block, done: Sequence[Done], seeds: Sequence[int], last: int) -> Read:
    """Refuses runs that are not comparable; what a row's switches or a search set may differ."""
    results: dict[str, list[Result]] = {}
    for cell, result in done:
        results.setdefault(cell.name, []).append(result)
    check_comparable([result for _, result in done], allowed=_may_differ(block))
    by_label = {name: tuple(found) for name, found in results.items()}
    read = Read(study, block, tuple(seeds), {row.name: row for row in tabulate(done, last)}, by_label)
    if not read.rows:
        return read
    paired = against(list(read.rows.values()), read.baseline)
    return Read(study, block, read.seeds, {row.name: row for row in paired}, by_label)


def _may_differ(block: Block) -> set[str]:
    switches = (switch for row in block.rows for switch in read_switches(row.asked)[1])
    return {*SEARCHED, *(switch.partition("=")[0].strip() for switch in switches)}


def record(read: Read, row: Row) -> dict[str, Any]:
    """A row as plain numbers: shares of 1, bytes, percent only for what the paper prints."""
    protocol, block = read.study.protocol, read.block
    told: dict[str, Any] = {
        **{"dataset": block.dataset, "alpha": block.alpha, "method": row.label, "asked": row.asked},
        **{"protocol": protocol, "paper": row.paper},
        **{"seeds": len(read.values(row)), "missing_seeds": len(read.seeds) - len(read.values(row))},
    }
    if not read.has(row.label):
        return told
    known, results = read.rows[row.label], read.results[row.label]
    others = {name: found.mean for name, found in known.accuracy.items() if name != protocol}
    return told | _accuracy(known, protocol) | others | _traffic(known, results) | _effort(known, protocol)


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
        "last_evaluations": last.mean if last else None,
        "worst_client": known.worst.get(protocol),
        "spread_over_clients": known.client_spread.get(protocol),
        **{f"seed_{seed}": value for seed, value in known.values[protocol].items()},
    }


def _traffic(known: OverSeeds, results: Sequence[Result]) -> dict[str, Any]:
    sent = [result["summary"]["communication"] for result in results]
    return {
        **{f"{name}_bytes": value for name, value in known.bytes.items()},
        "share_of_fedavg": known.bytes["total"] / fmean(map(_fedavg_bytes, results)),
        "parameters_up": fmean(one["uplink"]["parameters"] for one in sent),
        "parameters_down": fmean(one["downlink"]["parameters"] for one in sent),
        "prototype_values_up": fmean(one["uplink"]["prototype_values"] for one in sent),
        "prototype_values_down": fmean(one["downlink"]["prototype_values"] for one in sent),
        "messages": fmean(one["uplink"]["messages"] + one["downlink"]["messages"] for one in sent),
    }


def _fedavg_bytes(result: Result) -> float:
    """Whole models in float32 both ways, as often as clients took part."""
    full = result["summary"]["full_model"]
    return 2.0 * 4 * full["parameters"] * full["participations"]


def _effort(known: OverSeeds, protocol: str) -> dict[str, Any]:
    total = known.bytes["total"] / MEGABYTE
    return {
        "points_per_megabyte": 100 * known.accuracy[protocol].mean / total if total else None,
        "local_epochs": known.local_epochs,
        "steps": known.steps,
        "seconds": known.seconds,
    }
