"""Time per round and memory against the number of clients, each with the same number of samples.

Every point is a run in its own process, so that memory is measured separately. All points load the same data set and
use as much of it as their clients need, so that differences in memory are due to the number of clients.
As a program: `python -m refprotofl.bench.scale '{"clients": 100, …}'` prints one point.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from refprotofl.bench.measuring import MemoryWatch, Report, Row, ShowProgress, silent
from refprotofl.bench.overhead import CLASSES, MANY_IMAGES, MANY_SAMPLES
from refprotofl.bench.timed_runs import clocked_run
from refprotofl.core import InputError, RunError, counted
from refprotofl.experiment import Experiment
from refprotofl.report.pictures.style import BLUE, GRID, INK, open_figure, remove_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PUBLIC_PER_CLASS = 5
EVALUATED = 10


@dataclass(frozen=True)
class Point:
    model: str
    clients: int
    participants: int  # in each round
    samples: int  # of each client
    rounds: int


def points(model: str, clients: Sequence[int], participants: int | None, samples: int, rounds: int) -> list[Point]:
    """Return a point per number of clients, with `participants` of them in a round, all by default."""
    most = (MANY_SAMPLES - PUBLIC_PER_CLASS * CLASSES) // samples
    if max(clients) > most:
        raise InputError(f"{max(clients)} clients with {samples} samples each: there are images for {most} clients.")
    return [Point(model, count, min(count, participants or count), samples, rounds) for count in clients]


def measure_scale(wanted: Sequence[Point], show_progress: ShowProgress = silent) -> Report:
    rows = []
    for point in wanted:
        show_progress(f"{point.model}: {counted(point.clients, 'client')}, {point.participants} in a round")
        rows.append(measure_in_process(point))
    notes = [
        f"round s: the median of the rounds after the first, evaluation of {EVALUATED} clients included, by the wall "
        "clock and in CPU time. MB: peak private memory (RssAnon): up to the first round, and from there on."
    ]
    if any(row["memory_mb"] is None for row in rows):
        notes.append("This system has no /proc/self/status, so memory is unknown.")
    return Report("Scale: rounds and memory against the number of clients", rows, notes)


def measure_in_process(point: Point) -> Row:
    """Measure the point in a new process."""
    command = [sys.executable, "-m", __spec__.name, json.dumps(asdict(point))]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:] or ["no output"]
        raise RunError(f"The process that measured {counted(point.clients, 'client')} failed: {last[0]}")
    row: Row = json.loads(ended.stdout)
    return row


def measure_point(point: Point) -> Row:
    setup_bytes: list[int | None] = []
    with MemoryWatch() as memory:
        lap = clocked_run(experiment_of(point), None, begun=lambda: setup_bytes.append(memory.lap()))
    return {
        "model": point.model,
        "clients": point.clients,
        "in_a_round": point.participants,
        "samples_each": point.samples,
        "set_up_s": lap.setup,
        "round_s": _typical(lap.rounds),
        "round_cpu_s": _typical(lap.cpu),
        "cpu_ms_per_participant": 1000 * _typical(lap.cpu) / point.participants,
        "set_up_mb": _megabytes(setup_bytes[0]),
        "memory_mb": _megabytes(memory.highest),
    }


def experiment_of(point: Point) -> Experiment:
    return Experiment.parse(
        {
            "dataset": MANY_IMAGES,
            "train-limit": point.clients * point.samples + PUBLIC_PER_CLASS * CLASSES,
            "clients": point.clients,
            "fraction": point.participants / point.clients,
            "rounds": point.rounds,
            "partition": "iid",
            "min-size": 1,
            "public": {"per-class": PUBLIC_PER_CLASS},
            "model": {"name": point.model},
            "evaluate": {"every": 1, "clients": min(EVALUATED, point.clients)},
        }
    )


def _megabytes(count: int | None) -> float | None:
    return None if count is None else count / 1e6


def _typical(rounds: Sequence[float]) -> float:
    """Return the median without the first round, in which many clients join, unless it is the only one."""
    return median(rounds[1:] or rounds)


if __name__ == "__main__":
    print(json.dumps(measure_point(Point(**json.loads(sys.argv[1])))))


# The axis label, and for each curve: the key, its name, its colour.
CURVES = (
    ("seconds per round", (("round_s", "wall clock", BLUE), ("round_cpu_s", "CPU", INK))),
    ("MB", (("memory_mb", "private memory", BLUE),)),
)


def draw_scale(rows: Sequence[Row], path: Path, title: str) -> str:
    """Draw the rows to a .png, .pdf or .svg file; return a sentence on the picture."""
    with open_figure(path, 8, 3.2) as figure:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        for axes, (label, curves) in zip(figure.subplots(1, len(CURVES)), CURVES, strict=True):
            for key, name, colour in curves:
                known = [row for row in rows if row[key] is not None]
                axes.plot(
                    [row["clients"] for row in known], [row[key] for row in known], "o-", color=colour, label=name
                )
            _style_axes(axes, label)
    return f"{path}: {len(rows)} points."


def _style_axes(axes: "Axes", label: str) -> None:
    axes.set_xlabel("clients")
    axes.set_ylabel(label)
    _, right, _, top = axes.axis()
    axes.set_xlim(0, right)
    axes.set_ylim(0, 1.2 * top)
    axes.grid(color=GRID, linewidth=0.8)
    remove_frame(axes)
    axes.legend(frameon=False, loc="lower right")
