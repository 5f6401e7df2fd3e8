"""Every row of a block against every other, paired by seed: what a sentence about a difference rests on."""

from typing import Any

from refprotofl.report.comparison import Difference, OverSeeds, against
from refprotofl.report.formats import short_difference
from refprotofl.report.tables import Entry, Table
from refprotofl.reproduction.reading import Read

ENOUGH = 3  # rows, below which the table in detail says it all


def differences(read: Read) -> Table:
    """Row minus column, of the rows that have a finished run."""
    study, block, labels = read.study, read.block, [row.label for row in read.block.rows if row.label in read.rows]
    found = {label: _against(list(read.rows.values()), label, study.protocol) for label in labels}
    lines = [
        (Entry(one), *(Entry("" if one == other else short_difference(found[other].get(one))) for other in labels))
        for one in labels
    ]
    return Table(
        name=f"{study.name}-{block.file_name}-differences",
        title=f"{study.title}: {block.label}, preset {read.grid.preset}, row minus column in points",
        headings=("method", *labels),
        rows=tuple(lines),
        records=tuple(_record(one, other, found[other].get(one)) for one in labels for other in labels if one != other),
        notes=(
            f"By {study.protocol}, paired by seed, with 95 % interval: one that contains 0 is within noise",
            "*: p below 0.05, corrected by Holm within the column",
        ),
        about={"study": study.name, "protocol": study.protocol, "dataset": block.dataset, "alpha": block.alpha},
    )


def _against(rows: list[OverSeeds], baseline: str, protocol: str) -> dict[str, Difference]:
    """By the rows' names."""
    paired = {row.name: row.against.differences for row in against(rows, baseline) if row.against is not None}
    return {name: one[protocol] for name, one in paired.items() if protocol in one}


def _record(one: str, other: str, found: Difference | None) -> dict[str, Any]:
    pair = found.paired if found else None
    return {
        **{"method": one, "against": other, "difference": pair and pair.mean},
        **{"difference_half_width": pair and pair.half_width, "p": pair and pair.p},
        **{"p_holm": found and found.p_holm, "pairs": pair and pair.count},
    }
