"""The cost of portable numerics: CPU time of the same rounds with AVX2 kernels over that with the fastest ones.

The kernels are chosen once per process, so every measurement is a separate process. It reports the CPU time of the
rounds alone, without imports, data and models.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from refprotofl.bench.measuring import Report, Row, ShowProgress, alternate, quotients, silent, spread
from refprotofl.core import RunError
from refprotofl.core.numerics import EVERY_MAKER, VARIABLES
from refprotofl.experiment import Experiment

CHILD = "from refprotofl.bench.numerics import measure_here; measure_here()"

# By name: the key `numerics` and further environment variables.
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "native": ("native", {}),
    "portable": ("portable", {}),
    "portable, MKL_CBWR=COMPATIBLE": ("portable", EVERY_MAKER),
}


def measure_numerics(
    experiments: Sequence[Experiment], data: Path | None, repeats: int, show_progress: ShowProgress = silent
) -> Report:
    rows = [row for experiment in experiments for row in _measure(experiment, data, repeats, show_progress)]
    notes = (
        "CPU seconds of a run's rounds in one process, medians; ratio: over native in the same pass, the median over "
        "the passes. Every measurement is a new process.",
        "MKL_CBWR=COMPATIBLE makes digests independent of the CPU's maker; portable numerics do not set it.",
    )
    return Report("CPU time by numerics", rows, notes)


def _measure(experiment: Experiment, data: Path | None, repeats: int, show_progress: ShowProgress) -> list[Row]:
    name, found = str(experiment.model.name), dict[str, dict[str, str]]()

    def measure(kind: str) -> float:
        mode, environment = KINDS[kind]
        asked = experiment.model_copy(update={"numerics": mode, "device": "cpu"})
        measured = _in_new_process(asked, data, environment)
        found[kind] = {
            "cpu_capability": str(measured["cpu_capability"]),
            "state_digest": str(measured["state_digest"])[:12],
        }
        return float(measured["cpu"])

    times = alternate(
        {kind: partial(measure, kind) for kind in KINDS}, repeats, lambda progress: show_progress(f"{name}: {progress}")
    )
    ratios = {kind: quotients(seconds, times["native"]) for kind, seconds in times.items()}
    return [
        {
            "model": name,
            "numerics": kind,
            "cpu_s": median(times[kind]),
            "ratio": median(ratios[kind]),
            "spread": spread(ratios[kind]),
            **found[kind],
        }
        for kind in KINDS
    ]


def _in_new_process(experiment: Experiment, data: Path | None, environment: dict[str, str]) -> dict[str, Any]:
    """Measure in a child process without this process's limits: the child sets those of its experiment."""
    asked = {"experiment": experiment.asked(), "data": None if data is None else str(data)}
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    ended = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=clean | environment,
    )
    if ended.returncode:
        raise RunError(f"A measurement failed: {ended.stderr.strip()[-300:]}")
    measured: dict[str, Any] = json.loads(ended.stdout)
    return measured


def measure_here() -> None:
    """Run the experiment on standard input in this process and print the time of its rounds."""
    from refprotofl.bench.timed_runs import clocked_run
    from refprotofl.core import numerics

    asked = json.load(sys.stdin)
    lap = clocked_run(Experiment.parse(asked["experiment"]), asked["data"] and Path(asked["data"]))
    print(json.dumps({"cpu": sum(lap.cpu), "state_digest": lap.state_digest, **numerics.describe()}))
