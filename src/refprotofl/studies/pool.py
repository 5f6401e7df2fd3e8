"""More hands for a grid of short runs: processes that take cells from its end, as another terminal would.

A run that is over before worker processes have started gains nothing from them; several such runs at once do.
"""

import json
import multiprocessing
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import TracebackType

import torch

from refprotofl.core.devices import choose, process_count
from refprotofl.core.errors import RefProtoFLError
from refprotofl.core.process import interrupts_ignored, live_with_parent
from refprotofl.experiment import Experiment
from refprotofl.federation.session import Callback
from refprotofl.studies.cells import Cell
from refprotofl.studies.results import KeptResults
from refprotofl.studies.runner import Failed, run_cells

WORTH_HANDS = 30.0  # seconds of a grid below which starting more processes costs more than they save


def hands_for(cells: Sequence[Cell], seconds: float) -> int:
    """How many processes beside this one, for cells that take so long in one."""
    on_cpu = all(choose(cell.experiment.device).type == "cpu" for cell in cells)
    cores = process_count(torch.device("cpu"))
    return min(cores, len(cells)) - 1 if on_cpu and seconds > WORTH_HANDS else 0


class WorkerPool:
    """Leaves whatever fails to the process that it helps, which then meets the same and tells."""

    def __init__(self, count: int, cells: Sequence[Cell], data: Path | None, kept: KeptResults | None) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes: list[SpawnProcess] = []
        for number in range(count):
            plan = _plan(cells, number, count, data, kept)
            process = context.Process(target=_help, args=(plan,), daemon=True)
            with interrupts_ignored():
                process.start()
            self._processes.append(process)

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Runs that are under way go on when the grid does."""
        for process in self._processes:
            process.kill()
            process.join()


def _plan(cells: Sequence[Cell], number: int, count: int, data: Path | None, kept: KeptResults | None) -> bytes:
    """The cells from the end, each hand beginning at another one."""
    ordered = [*cells[::-1][number::count], *cells[::-1]]
    return json.dumps(
        {
            "cells": [
                {"name": cell.name, "folder": str(cell.folder), "experiment": cell.experiment.asked()}
                for cell in {cell.folder: cell for cell in ordered}.values()
            ],
            "data": None if data is None else str(data),
            "kept": None if kept is None else [str(kept.file), *map(str, kept.others)],
        }
    ).encode()


def _help(plan: bytes) -> None:
    live_with_parent()
    plain = json.loads(plan)
    data = None if plain["data"] is None else Path(plain["data"])
    file, *others = map(Path, plain["kept"] or [""])
    kept = KeptResults(file, tuple(others)) if plain["kept"] else None
    cells = [Cell(one["name"], Experiment.parse(one["experiment"]), Path(one["folder"])) for one in plain["cells"]]
    with suppress(RefProtoFLError):
        for _ in run_cells(cells, data, 1, lambda number, cell: Callback(), kept=kept, failed=_left_alone):
            pass


def _left_alone(failed: Failed) -> None:
    pass
