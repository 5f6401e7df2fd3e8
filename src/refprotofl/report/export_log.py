"""Export of a run's events to a tracker, as named numbers per round, after the run or during it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from refprotofl.core import InputError
from refprotofl.records import Event
from refprotofl.report.page.collect import is_run
from refprotofl.report.page.run_page import flat
from refprotofl.report.page.run_reader import RunReader
from refprotofl.report.trackers import WRITERS, Scalar, Tracker


class Scalars:
    """Turns events into named numbers per round; bytes are cumulative."""

    def __init__(self) -> None:
        self._sent = {"up": 0, "down": 0, "one_off": 0}
        self._dropped = 0  # in the current round

    def of(self, event: Event) -> Iterator[Scalar]:
        number = int(event.get("round", 0))
        if event["event"] == "evaluation":
            for protocol, share in event["accuracy"].items():
                if share is not None:
                    yield f"accuracy/{protocol}", number, share
            for protocol, metrics in event.get("metrics", {}).items():
                yield from ((f"{name}/{protocol}", number, one) for name, one in metrics.items() if name != "accuracy")
        elif event["event"] == "round":
            yield from self._round(number, event)
        elif event["event"] == "client-failed":
            self._dropped += 1

    def _round(self, number: int, event: Event) -> Iterator[Scalar]:
        for row in event.get("traffic", ()):
            if row["purpose"] != "evaluation":
                self._sent[row["direction"] if row["purpose"] == "training" else "one_off"] += row["payload_bytes"]
        for way, total in self._sent.items():
            yield f"bytes/{way}", number, float(total)
        yield "clients/participants", number, float(len(event.get("participants", [])))
        yield "clients/dropped", number, float(self._dropped)
        self._dropped = 0
        if "seconds" in event:
            yield "seconds/round", number, event["seconds"]
        for name, seconds in event.get("spent", {}).items():
            yield f"seconds/{name}", number, seconds
        masks = event.get("masks")
        if masks is not None:
            if masks["overlap"] is not None:
                yield "masks/overlap", number, masks["overlap"]
            sent = sum(part["sent"] for part in masks["parts"].values()) or 1
            for name, part in masks["parts"].items():
                yield f"masks/share-{name}", number, part["sent"] / sent


POLL = 1.0


def export_log(
    run_folder: Path, to: Tracker, out: Path, follow: bool = False, wait: Callable[[float], object] = time.sleep
) -> int:
    """Write a run's numbers to a folder or, for CSV, a file. With `follow`, continue until the run has ended."""
    if not is_run(run_folder):
        raise InputError(f"{run_folder} is not a run folder: it has no experiment.json.")
    reader, scalars, written = RunReader(run_folder), Scalars(), 0
    writer = WRITERS[to](out, run_folder.absolute().name, flat(reader.run.experiment.plain()))
    try:
        while True:
            for _, event in reader.read():
                for scalar in scalars.of(event):
                    writer.write(scalar)
                    written += 1
            writer.flush()
            if not follow or reader.run.ended:
                return written
            wait(POLL)
    finally:
        writer.close(reader.run.ended)
