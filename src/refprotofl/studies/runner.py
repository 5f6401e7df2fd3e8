"""A grid's runs, each done once, by however many processes work at it."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from refprotofl.core.errors import BudgetError, MachineError, RunError
from refprotofl.federation.provenance import current_folder
from refprotofl.federation.session import Callback, Workers, run
from refprotofl.records.folder import Busy, read_experiment
from refprotofl.studies.cells import Cell, cell_folder
from refprotofl.studies.results import KeptResults, Result, result_of

POLL = 1.0  # seconds between looks at what another process is running


@dataclass(frozen=True)
class Failed:
    """A run that came to no result."""

    cell: Cell
    problem: RunError | BudgetError


Done = tuple[Cell, Result]


def run_cells(
    cells: Sequence[Cell],
    data: Path | None,
    workers: Workers | Callable[[Cell], Workers],
    watch: Callable[[int, Cell], Callback],
    *,
    kept: KeptResults | None = None,
    failed: Callable[[Failed], None] | None = None,
) -> Iterator[Done]:
    """Each cell's result as it comes; a finished run is read, an interrupted one goes on.

    Where data or the user's code changed since, a run of its own is begun beside it. A run that another process is at
    is put off; in the end it is waited for. `kept` are results that count as finished, and new ones are added to
    them. A run that fails ends the grid, unless somebody wants to be told of it instead; a full disk or the like, which
    the next run would meet as well, ends it in any case.
    """
    workers_of = workers if callable(workers) else lambda cell: workers
    waiting, put_off = deque(enumerate(cells)), 0
    while waiting:
        number, planned = waiting.popleft()
        try:
            found = _kept(planned, data, kept)
            done = found or _run(planned, data, workers_of(planned), partial(watch, number))
        except Busy:
            waiting.append((number, planned))
            put_off += 1
            if put_off >= len(waiting):  # all that is left is somebody else's
                time.sleep(POLL)
                put_off = 0
            continue
        except (RunError, BudgetError) as problem:
            if failed is None or isinstance(problem, MachineError):
                raise
            failed(Failed(planned, problem))
            continue
        put_off = 0
        if found is not None:
            watch(number, planned).on_reuse()
        elif kept is not None:
            kept.add(done[1])
        yield done


def beside_longer(cell: Cell, runs: Path, data: Path | None) -> Cell:
    """Where its folder has come to more rounds already, as in another search, a run with fewer gets one of its own."""
    folder = current_folder(cell.folder, cell.experiment, data)
    if (folder / "experiment.json").exists() and read_experiment(folder).rounds > cell.experiment.rounds:
        return replace(cell, folder=cell_folder(runs, cell.experiment))
    return cell


def _kept(cell: Cell, data: Path | None, kept: KeptResults | None) -> Done | None:
    found = None if kept is None else kept.find(cell, data)
    return None if found is None else (replace(cell, reused=True), found)


def _run(planned: Cell, data: Path | None, workers: Workers, watch: Callable[[Cell], Callback]) -> Done:
    cell = replace(planned, folder=current_folder(planned.folder, planned.experiment, data))
    finished = run(cell.experiment, out=cell.folder, data=data, workers=workers, resume=True, callback=watch(cell))
    return replace(cell, reused=finished.reused), result_of(finished.folder, cell.experiment, finished.summary)
