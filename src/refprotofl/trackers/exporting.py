"""From events.jsonl to a tracker, after the fact or while the run goes on."""

import time
from collections.abc import Callable
from pathlib import Path

from refprotofl.errors import InputError
from refprotofl.report.page.about import flat
from refprotofl.report.page.gathering import is_run
from refprotofl.report.page.reading import RunReader
from refprotofl.trackers.scalars import Scalars
from refprotofl.trackers.writers import Tracker, open_writer

POLL = 1.0


def export_log(
    run_folder: Path, to: Tracker, out: Path, follow: bool = False, wait: Callable[[float], object] = time.sleep
) -> int:
    """Writes a run's numbers and gives how many; with `follow` until the run has ended."""
    if not is_run(run_folder):
        raise InputError(f"{run_folder} is not a run folder: it has no experiment.json.")
    reader, scalars, written = RunReader(run_folder), Scalars(), 0
    writer = open_writer(to, out, run_folder.absolute().name, flat(reader.told.experiment.plain()))
    try:
        while True:
            for _, event in reader.read():
                for scalar in scalars.of(event):
                    writer.write(scalar)
                    written += 1
            writer.flush()
            if not follow or reader.told.ended:
                return written
            wait(POLL)
    finally:
        writer.close(reader.told.ended)
