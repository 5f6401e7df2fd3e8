"""What commands over grids of runs have in common: doing the runs, and showing a table of what came of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from refprotofl.cli.app import INTERRUPTED
from refprotofl.cli.output import Column, complain, explain, notes, show, warn
from refprotofl.core.escaping import for_terminal
from refprotofl.core.units import counted

if TYPE_CHECKING:
    from refprotofl.federation.session import Callback, Workers
    from refprotofl.report.tables import Table
    from refprotofl.studies.cells import Cell
    from refprotofl.studies.results import KeptResults
    from refprotofl.studies.runner import Done, Failed
    from refprotofl.studies.tune.search import Watch


@contextmanager
def watched_search(out: Path) -> "Iterator[Watch]":
    """A bar for each batch of a search's runs; who interrupts them is told that what was tried is there."""
    from refprotofl.cli.progress import GridWatcher

    with ExitStack() as bars:

        def watch(cells: "Sequence[Cell]") -> "Callable[[int, Cell], Callback]":
            bars.close()  # that of the batch before
            callback = GridWatcher(notes, [cell.experiment.rounds for cell in cells])
            bars.callback(callback.on_close)
            return callback.watch

        try:
            yield watch
        except KeyboardInterrupt:
            bars.close()
            complain(f"Interrupted. What was tried is kept in {for_terminal(out)}; the same command goes on from here.")
            raise typer.Exit(INTERRUPTED) from None


def run_grid(
    cells: "Sequence[Cell]",
    data: Path | None,
    workers: "Workers | Callable[[Cell], Workers]",
    out_dir: Path,
    *,
    kept: "KeptResults | None" = None,
    failed: "Callable[[Failed], None] | None" = None,
    hands: int = 0,
) -> "list[Done]":
    """Does the runs with a bar; who interrupts them is told what is there. As `run_cells` has it otherwise.

    `hands`: processes beside this one that take some of the runs.
    """
    from refprotofl.cli.progress import GridWatcher
    from refprotofl.studies.pool import WorkerPool
    from refprotofl.studies.runner import run_cells

    callback = GridWatcher(notes, [cell.experiment.rounds for cell in cells])
    done = []
    try:
        with WorkerPool(hands, cells, data, kept):
            for one in run_cells(cells, data, workers, callback.watch, kept=kept, failed=failed):
                done.append(one)
    except KeyboardInterrupt:
        callback.on_close()
        there = f"{for_terminal(out_dir)}: {len(done)} of {counted(len(cells), 'run')}"
        complain(f"Interrupted. Finished and kept in {there}; the same command goes on from here.")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        callback.on_close()
    return done


def warn_of(failures: "Sequence[Failed]") -> None:
    for one in failures:
        warn(f"{for_terminal(one.cell.name)}, seed {one.cell.experiment.seed}: {for_terminal(one.problem)}")


def show_table(table: "Table", beneath: Sequence[str]) -> None:
    """What is set in bold elsewhere has a star here."""
    words = [Column(heading, wraps=24) for heading in table.headings[: table.left]]
    numbers = [Column(heading, numbers=True) for heading in table.headings[table.left :]]
    shown = {"best": "{} *", "within noise": "{} †", "behind": "{}"}
    rows = [[shown[entry.standing].format(entry.text) for entry in row] for row in table.rows]
    show([*words, *numbers], rows, table.title)
    for note in beneath:
        explain(for_terminal(note.replace("Bold:", "*:")))
