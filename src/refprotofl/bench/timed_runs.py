"""Runs with the wall-clock and CPU time of each round."""

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, run
from refprotofl.records import Event

Begun = Callable[[], None]
Companion = Callable[[Path], AbstractContextManager[Begun]]


@dataclass(frozen=True)
class Lap:
    """One run, in seconds. A round lasts from the commit before to its own, checkpoint and events included."""

    setup: float  # wall clock up to the first round: data, models, worker processes
    rounds: tuple[float, ...]  # wall clock of each
    cpu: tuple[float, ...]  # CPU time of this process in each
    state_digest: str


def ignore_begin() -> None:
    """Do nothing at the beginning of the rounds."""


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
    experiment: Experiment,
    data: Path | None,
    workers: int = 1,
    begun: Begun = ignore_begin,
    companion: Companion | None = None,
) -> Lap:
    """Run the experiment in a temporary folder; `begun` is called when the set-up is over.

    `companion` is a context during the run, made with the run's folder; the function that it yields replaces `begun`.
    """
    with tempfile.TemporaryDirectory(prefix="refprotofl-bench-") as folder, ExitStack() as context:
        begun = context.enter_context(companion(Path(folder) / "run")) if companion else begun
        callback = RoundClock(begun)
        begin = time.perf_counter()
        finished = run(experiment, out=Path(folder) / "run", data=data, workers=workers, callback=callback)
    setup = callback.wall[0] - begin
    return Lap(setup, _gaps(callback.wall), _gaps(callback.cpu), finished.summary["state_digest"])


def _gaps(readings: Sequence[float]) -> tuple[float, ...]:
    return tuple(after - before for before, after in pairwise(readings))
