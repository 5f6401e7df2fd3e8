"""Somebody who looks on at a run: the live page's process, and one that reads it as a browser does."""

import multiprocessing
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path

from refprotofl.benchmarks.runs import Begun
from refprotofl.live.beside import Beside

PATIENCE = 120.0  # seconds until the page is there


@contextmanager
def looked_on(folder: Path) -> Iterator[Begun]:
    """Gives what waits until the page is being read, to be called when the rounds are about to begin."""
    context = multiprocessing.get_context("spawn")
    reading = context.Event()
    beside = Beside(folder)
    reader = context.Process(target=look, args=(beside.address, reading), daemon=True)
    reader.start()
    try:
        yield lambda: _await(reading)
    finally:
        reader.terminate()
        reader.join()
        beside.close()


def _await(reading: Event) -> None:
    if not reading.wait(PATIENCE):
        raise TimeoutError("the page is not there")


def look(address: str, reading: Event) -> None:
    """Follows the events, and fetches the page's data at most once a second, as page.js does."""
    with suppress(OSError):
        urllib.request.urlopen(address, timeout=PATIENCE).read()
        with urllib.request.urlopen(f"{address}events", timeout=PATIENCE) as events:
            reading.set()
            last = 0.0
            for line in events:
                if line.startswith(b"event:") and time.monotonic() - last > 1:
                    urllib.request.urlopen(f"{address}page.json", timeout=PATIENCE).read()
                    last = time.monotonic()
