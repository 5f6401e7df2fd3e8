"""The mean over a study's blocks, as in the paper's Table 1, and all pairwise differences, paired by seed."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from refprotofl.core import counted
from refprotofl.report import Difference, Entry, Table, all_pairs, estimate, paired, short_difference
from refprotofl.studies.reproduce import studies
from refprotofl.studies.reproduce.cells import Read
from refprotofl.studies.reproduce.studies import Row
from refprotofl.studies.reproduce.verdicts import Setting


def average(reads: Sequence[Read], label: str) -> dict[int, float]:
    """Average a row over all blocks, by seeds that each block has; empty if a block lacks the row."""
    blocks = [read.values(row) if (row := _row(read, label)) else {} for read in reads]
    common = set.intersection(*map(set, blocks))
    return {seed: fmean(values[seed] for values in blocks) for seed in sorted(common)}


def any_missing(reads: Sequence[Read], label: str) -> bool:
    """Return True if a run of the row is missing in any block."""
    rows = [(read, _row(read, label)) for read in reads]
    return any(row is None or read.missing(row) for read, row in rows)


def printed_average(reads: Sequence[Read], label: str) -> float | None:
    """Return the paper's average, if the blocks are the paper's eight and the row is one of its methods."""
    eight = {(dataset, alpha) for dataset in studies.DATASETS for alpha in studies.ALPHAS}
    rows = [_row(read, label) for read in reads]
    if {(read.block.dataset, read.block.alpha) for read in reads} != eight:
        return None
    own = next((row for row in rows if row and row.paper is not None), None)
    return studies.AVERAGE[own.method] if own else None


def average_setting(reads: Sequence[Read], label: str) -> Setting:
    """Return the setting that all blocks share; `changed` if they differ."""
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


ENOUGH = 3  # rows; with fewer, the detailed table has all differences


def differences(read: Read) -> Table:
    """Build the table of pairwise differences, row minus column, of rows with a finished run."""
    study, block, labels = read.study, read.block, [row.label for row in read.block.rows if row.label in read.rows]
    found = all_pairs(list(read.rows.values()), study.protocol, read.grid.margin)
    family = sum(one.p_holm is not None for one in found.values()) // 2
    lines = [
        (Entry(one), *(Entry("" if one == other else short_difference(found.get((one, other)))) for other in labels))
        for one in labels
    ]
    return Table(
        name=f"{study.name}-{block.file_name}-differences",
        title=f"{study.title}: {block.label}, preset {read.grid.preset}, row minus column in points",
        headings=("method", *labels),
        rows=tuple(lines),
        records=tuple(
            _record(one, other, found.get((one, other))) for one in labels for other in labels if one != other
        ),
        notes=(
            f"By {study.protocol}, paired by seed, with 95 % interval: one that contains 0 is within noise",
            f"*: p below 0.05, corrected by Holm over the {counted(family, 'pair')} of this table, each counted once",
        ),
        about={"study": study.name, "protocol": study.protocol, "dataset": block.dataset, "alpha": block.alpha},
    )


def _record(one: str, other: str, found: Difference | None) -> dict[str, Any]:
    pair = found.paired if found else None
    return {
        **{"method": one, "against": other, "difference": pair and pair.mean},
        **{"difference_half_width": pair and pair.half_width, "p": pair and pair.p},
        **{"p_holm": found and found.p_holm, "pairs": pair and pair.count, "verdict": found and found.verdict},
    }
