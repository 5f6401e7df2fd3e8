"""Studies: many runs planned together, executed once and evaluated with paired statistics."""

from typing import TYPE_CHECKING

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.studies.planner import Planner
    from refprotofl.studies.results import (
        CELLS,
        KeptResults,
        Point,
        Result,
        count_numerics,
        find_cells,
        find_result,
        read_lines,
        result_of,
    )
    from refprotofl.studies.rows import read_row, split_list
    from refprotofl.studies.trials import Base, Trial
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "CELLS",
    "Base",
    "KeptResults",
    "Planner",
    "Point",
    "Result",
    "Trial",
    "count_numerics",
    "find_cells",
    "find_result",
    "read_lines",
    "read_row",
    "result_of",
    "split_list",
]
