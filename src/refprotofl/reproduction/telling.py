"""The tables of each grid."""

from collections.abc import Callable, Mapping, Sequence

from refprotofl.grids.results import Result
from refprotofl.report.tables import Table
from refprotofl.reproduction.planning import Grid
from refprotofl.reproduction.reading import Read, read_block
from refprotofl.reproduction.studies import Study
from refprotofl.reproduction.tables import communication, detail, overview

Results = Mapping[str, Result]  # by the hash of what was asked for


def read_study(grid: Grid, study: Study, results: Results, last: int) -> list[Read]:
    return [
        read_block(study, block, list(grid.done(study, block, results)), grid.seeds, last) for block in study.blocks
    ]


def tables_of(what: str, grid: Grid, results: Results, last: int) -> list[Table]:
    """Of a study with several blocks one over all of them, too."""
    tell = _TELLERS.get(what, _accuracies)
    return [
        table for study in grid.studies for table in tell(study, read_study(grid, study, results, last), grid.preset)
    ]


def _accuracies(study: Study, reads: Sequence[Read], preset: str) -> list[Table]:
    return [overview(study, reads, preset), *(detail(read, preset) for read in reads)]


def _communication(study: Study, reads: Sequence[Read], preset: str) -> list[Table]:
    return [communication(read, preset) for read in reads]


def _details(study: Study, reads: Sequence[Read], preset: str) -> list[Table]:
    return [detail(read, preset) for read in reads]


def _none(study: Study, reads: Sequence[Read], preset: str) -> list[Table]:
    return []


_TELLERS: dict[str, Callable[[Study, Sequence[Read], str], list[Table]]] = {
    "communication": _communication,
    "sweeps": _details,
    "compressors": _details,
    "curves": _details,
    "tsne-figure": _none,
}
