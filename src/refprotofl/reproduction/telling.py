"""The tables of each grid."""

from dataclasses import dataclass, field

from refprotofl.report.tables import Table
from refprotofl.reproduction.differences import ENOUGH, differences
from refprotofl.reproduction.planning import Grid, Results
from refprotofl.reproduction.reading import read_study
from refprotofl.reproduction.tables import communication, detail, overview


@dataclass(frozen=True)
class Told:
    first: list[Table] = field(default_factory=list)  # to be read first
    details: list[Table] = field(default_factory=list)  # for the files


def tables_of(what: str, grid: Grid, results: Results, last: int) -> Told:
    """Of each study a table over all its blocks, each in detail, and its differences; of communication one of each."""
    told = Told()
    for study in grid.studies if what != "tsne-figure" else ():
        reads = read_study(grid, study, results, last)
        if what == "communication":
            told.first.extend(map(communication, reads))
        else:
            told.first.append(overview(study, reads))
            told.details.extend(map(detail, reads))
            told.details.extend(differences(read) for read in reads if len(read.rows) >= ENOUGH)
    return told
