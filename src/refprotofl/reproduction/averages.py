"""The mean over a study's blocks, with which the paper's first table ends."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from refprotofl.report.statistics import estimate, paired
from refprotofl.reproduction import paper
from refprotofl.reproduction.reading import Read
from refprotofl.reproduction.studies import Row
from refprotofl.reproduction.verdicts import Setting


def average(reads: Sequence[Read], label: str) -> dict[int, float]:
    """Over all blocks, by the seeds that each of them has; empty where a block has none of the row."""
    blocks = [read.values(row) if (row := _row(read, label)) else {} for read in reads]
    common = set.intersection(*map(set, blocks))
    return {seed: fmean(values[seed] for values in blocks) for seed in sorted(common)}


def any_missing(reads: Sequence[Read], label: str) -> bool:
    """Whether a run of the row is, in any block; else its method does not have what is averaged."""
    rows = [(read, _row(read, label)) for read in reads]
    return any(row is None or read.missing(row) for read, row in rows)


def printed_average(reads: Sequence[Read], label: str) -> float | None:
    """The paper's, where the blocks are its eight and the row is one of its own."""
    eight = {(dataset, alpha) for dataset in paper.DATASETS for alpha in paper.ALPHAS}
    rows = [_row(read, label) for read in reads]
    if {(read.block.dataset, read.block.alpha) for read in reads} != eight:
        return None
    own = next((row for row in rows if row and row.paper is not None), None)
    return paper.AVERAGE[own.method] if own else None


def average_setting(reads: Sequence[Read], label: str) -> Setting:
    """The paper's where that of every block is."""
    settings = {read.setting(row) for read in reads if (row := _row(read, label))}
    return next(iter(settings)) if len(settings) == 1 else "changed"


def average_record(reads: Sequence[Read], label: str) -> dict[str, Any]:
    values, row = average(reads, label), next(row for read in reads if (row := _row(read, label)))
    found = estimate(list(values.values())) if values else None
    base = reads[0].baseline
    pair = paired(values, average(reads, base)) if label != base else None
    return {
        **{"dataset": "average", "alpha": None, "method": label, "asked": row.asked},
        **{"protocol": reads[0].study.protocol, "paper": printed_average(reads, label), "seeds": len(values)},
        **{"mean": found and found.mean, "half_width": found and found.half_width},
        **{"against": base if label != base else None, "difference": pair and pair.mean},
        **{"difference_half_width": pair and pair.half_width, "p": pair and pair.p, "pairs": pair and pair.count},
        **{f"seed_{seed}": value for seed, value in values.items()},
    }


def _row(read: Read, label: str) -> Row | None:
    return next((row for row in read.block.rows if row.label == label), None)
