"""Start-up times of the help text and of the first committed round, each compared with a lower bound."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

from refprotofl.bench.measuring import Measure, Report, Row, ShowProgress, alternate, ratio, silent
from refprotofl.core import RunError

PROGRAM = (sys.executable, "-c", "from refprotofl.cli import main; main()")
ONE_COMMAND = "import typer; app = typer.Typer(); app.command()(lambda: None); app()"
RUNS = ("--preset quick", "--preset quick --workers 1")
LONGEST = 300.0  # seconds that the first round may take
POLL = 0.005  # seconds between readings of the events


def measure_start(repeats: int, show_progress: ShowProgress = silent) -> Report:
    shown, one_command, torch = "refprotofl --help", "--help of a typer program with one command", "import torch"
    runs = {f"first round of run {words}": words.split() for words in RUNS}
    measures: dict[str, Measure] = {
        shown: lambda: wall_clock([*PROGRAM, "--help"]),
        one_command: lambda: wall_clock([sys.executable, "-c", ONE_COMMAND, "--help"]),
        torch: lambda: wall_clock([sys.executable, "-c", "import torch"]),
    }
    measures |= {name: partial(first_round, arguments) for name, arguments in runs.items()}
    found = alternate(measures, repeats, show_progress)
    pairs = [(shown, one_command), *((name, torch) for name in runs)]
    rows: list[Row] = [
        {
            "command": ours,
            "command_s": median(found[ours]),
            "bound": other,
            "bound_s": median(found[other]),
            "ratio": ratio(found[ours], found[other]),
        }
        for ours, other in pairs
    ]
    return Report("Start-up, wall-clock time of new processes", rows)


def wall_clock(command: Sequence[str]) -> float:
    begin = time.perf_counter()
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise RunError(f"{' '.join(command[1:])} ended with {ended.returncode}: {ended.stderr.strip()[-200:]}")
    return time.perf_counter() - begin


def first_round(arguments: Sequence[str]) -> float:
    """Return the seconds from the command `run` to the first round on disk; the run is then terminated."""
    with tempfile.TemporaryDirectory(prefix="refprotofl-bench-") as place:
        out = Path(place) / "run"
        begin = time.perf_counter()
        command = [*PROGRAM, "run", *arguments, "--out", str(out)]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not has_round(out / "events.jsonl"):
                if running.poll() not in (None, 0) or time.perf_counter() - begin > LONGEST:
                    raise RunError(f"refprotofl run {' '.join(arguments)} did not commit a round.")
                time.sleep(POLL)
            return time.perf_counter() - begin
        finally:
            running.terminate()
            running.wait()


def has_round(events: Path) -> bool:
    return events.exists() and '"event": "round"' in events.read_text(encoding="utf-8")
