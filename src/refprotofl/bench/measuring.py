"""Tools of all measurements: alternation, ratios, conditions, reports, and a process's own memory."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self

from refprotofl.records import describe_machine

Measure = Callable[[], float]  # does its work and returns the seconds that it took
Clock = Callable[[], float]
ShowProgress = Callable[[str], None]
Row = dict[str, str | int | float | bool | None]


@dataclass(frozen=True)
class Report:
    """The result of a benchmark: rows with the same keys, and notes on how to read them."""

    title: str
    rows: Sequence[Row]
    notes: Sequence[str] = ()


def silent(progress: str) -> None:
    """Ignore progress."""


def alternate(
    measures: Mapping[str, Measure], repeats: int, show_progress: ShowProgress = silent
) -> dict[str, list[float]]:
    """Take each measurement once per pass, so that a slower machine slows them all; every other pass backwards.

    A pass before the first is discarded: what happens once in a process, such as an import, is not measured.
    """
    found: dict[str, list[float]] = {name: [] for name in measures}
    for turn in range(repeats + 1):
        show_progress(f"pass {turn} of {repeats}" if turn else "a pass to warm up")
        for name in list(measures)[:: 1 if turn % 2 else -1]:
            seconds = measures[name]()
            if turn:
                found[name].append(seconds)
    return found


def timed(work: Callable[[], object], clock: Clock = time.process_time) -> Measure:
    """Return a measurement of work: CPU time of the whole process unless another clock is given."""

    def measure() -> float:
        begin = clock()
        work()
        return clock() - begin

    return measure


def quotients(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Return the quotient of each pass, whose measurements had the same conditions."""
    return [one / other for one, other in zip(above, below, strict=True)]


def ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the median quotient over the passes."""
    return median(quotients(above, below))


def spread(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def conditions() -> dict[str, str | int | float]:
    """Return the machine, the versions, and the load (1 is one busy core)."""
    load = {"load": round(os.getloadavg()[0], 2)} if hasattr(os, "getloadavg") else {}
    return {**describe_machine(), **load}


INTERVAL = 0.01  # seconds between readings: a reading takes about 50 microseconds


def private_bytes() -> int | None:
    """Return this process's private memory without mapped files; None where the system does not report it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")]
    return 1024 * int(kilobytes[0]) if kilobytes else None


class MemoryWatch:
    """Polls `private_bytes` while its block runs: the value `before` it, and the `highest` in it."""

    def __init__(self) -> None:
        self.before: int | None = None
        self.highest: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self.before = self.highest = private_bytes()
        if self.before is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._note()

    def lap(self) -> int | None:
        """Return the highest value so far, and start anew."""
        self._note()
        seen, self.highest = self.highest, None
        self._note()
        return seen

    def _look(self) -> None:
        while not self._over.wait(INTERVAL):
            self._note()

    def _note(self) -> None:
        seen = private_bytes()
        if seen is not None:
            self.highest = max(self.highest or 0, seen)
