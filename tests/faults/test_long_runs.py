"""A long run takes no more memory, handles or time to resume than a short one.

40 rounds of 4 clients by default; 300 rounds of 30 clients, also in worker processes, with REFPROTOFL_FAULTS=full, as
`make test-faults` has it.
"""

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, run
from refprotofl.records.events import EventLog
from refprotofl.records.folder import read_events

EVERYTHING = os.environ.get("REFPROTOFL_FAULTS") == "full"
ROUNDS, CLIENTS = (300, 30) if EVERYTHING else (40, 4)
PAGE = os.sysconf("SC_PAGE_SIZE")


def experiment() -> Experiment:
    plain: dict[str, Any] = {
        **{"dataset": "digits", "train-limit": 60 + 20 * CLIENTS, "clients": CLIENTS, "rounds": ROUNDS, "min-size": 5},
        **{"public": {"per-class": 2}, "train": {"batch-size": 16}, "evaluate": {"every": 10, "test-limit": 20}},
        "model": {"name": "mlp", "norm": "none", "embedding": 8},
    }
    return Experiment.parse(plain)


def family() -> list[int]:
    """This process and its children."""
    found = [os.getpid()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == os.getpid():
                found.append(int(entry.name))
    return found


class Gauge(Callback):
    """Bytes in memory and open handles after each round, of all processes."""

    def __init__(self) -> None:
        self.memory: list[int] = []
        self.handles: list[int] = []

    def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
        processes = [Path(f"/proc/{number}") for number in family()]
        self.memory.append(sum(int((one / "statm").read_text().split()[1]) for one in processes) * PAGE)
        self.handles.append(sum(len(os.listdir(one / "fd")) for one in processes))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory and handles are read from /proc")
@pytest.mark.parametrize("workers", [1, 2] if EVERYTHING else [1])
def test_memory_handles_and_events_stay_flat(tmp_path: Path, workers: int) -> None:
    gauge = Gauge()
    folder = run(experiment(), out=tmp_path / "run", workers=workers, callback=gauge).folder
    warm = ROUNDS // 4
    assert len(gauge.memory) == ROUNDS
    assert max(gauge.handles[warm:]) <= max(gauge.handles[:warm]) + 2
    assert max(gauge.memory[-warm:]) - max(gauge.memory[:warm]) < 30_000_000
    lengths = [len(line) for line in (folder / "events.jsonl").read_bytes().splitlines() if b'"event": "round"' in line]
    assert len(lengths) == ROUNDS
    scored = lengths[9::10]  # those with an evaluation
    assert max(scored) - min(scored) < 500
    assert max(lengths[1:]) < 2200 + 150 * CLIENTS
    assert len(list((folder / "checkpoint" / "clients").iterdir())) == 3 * CLIENTS  # keep-checkpoints


def test_going_on_reads_the_end_of_the_events_alone(tmp_path: Path) -> None:
    written = EventLog(tmp_path / "events.jsonl")
    size = 0
    for number in range(1, 2001):
        lines = written.chained([{"event": "round", "round": number, "filling": "x" * 5000}])
        size = written.size_with(lines)
        written.append(lines)
    written.record({"event": "resume"})
    assert size > 10_000_000
    peaks = []
    for _ in range(3):  # threads that other tests left behind may take memory meanwhile
        tracemalloc.start()
        log = EventLog(written.path)
        since = log.repair(2000, lines, size)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert [event["event"] for event in since] == ["resume"]
    assert min(peaks) < 1_000_000
    log.record({"event": "end"})
    assert [event["event"] for event in read_events(tmp_path)[-3:]] == ["round", "resume", "end"]
