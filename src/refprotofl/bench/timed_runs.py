"""Runs by the clock."""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from refprotofl.experiment import Experiment
from refprotofl.federation.session import Callback, Event, run

Begun = Callable[[], None]
Company = Callable[[Path], AbstractContextManager[Begun]]


@dataclass(frozen=True)
class Lap:
    """One run, in seconds. A round lasts from the commit before to its own, checkpoint and events included."""

    setup: float  # wall clock up to the first round: data, models, worker processes
    rounds: tuple[float, ...]  # wall clock of each
    cpu: tuple[float, ...]  # CPU time of this process in each
    state_digest: str


def nothing() -> None:
    """Nobody wants to know."""


class RoundClock(Callback):
    """Reads both clocks when the rounds begin and whenever one is on disk."""

    def __init__(self, begun: Begun) -> None:
        self._begun = begun
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def on_start(self, experiment: Experiment, folder: Path, workers: int, rounds_done: int) -> None:
        self._begun()
        self._read()

    def on_round(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        self._read()

    def _read(self) -> None:
        self.wall.append(time.perf_counter())
        self.cpu.append(time.process_time())


def clocked_run(
    experiment: Experiment, data: Path | None, workers: int = 1, begun: Begun = nothing, beside: Company | None = None
) -> Lap:
    """Runs the experiment in a folder that is gone afterwards; `begun` is called when the set-up is over.

    `beside` is what goes on beside it, by the run's folder; what it gives is called when the set-up is over, too.
    """
    with tempfile.TemporaryDirectory(prefix="refprotofl-bench-") as folder, ExitStack() as company:
        begun = company.enter_context(beside(Path(folder) / "run")) if beside else begun
        callback = RoundClock(begun)
        begin = time.perf_counter()
        finished = run(experiment, out=Path(folder) / "run", data=data, workers=workers, callback=callback)
    setup = callback.wall[0] - begin
    return Lap(setup, _gaps(callback.wall), _gaps(callback.cpu), finished.summary["state_digest"])


def _gaps(readings: Sequence[float]) -> tuple[float, ...]:
    return tuple(after - before for before, after in pairwise(readings))
