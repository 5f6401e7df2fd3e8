"""The shared incremental reader behind the live page: one run, or a folder of runs, for all viewers."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from refprotofl.core import RefProtoFLError
from refprotofl.records import Event
from refprotofl.report.page.collect import KnownRuns, find_runs, gather, is_run
from refprotofl.report.page.curves import progress_of
from refprotofl.report.page.elements import Page, words
from refprotofl.report.page.html import plain
from refprotofl.report.page.run_page import run_page
from refprotofl.report.page.run_reader import RunReader

POLL = 0.5  # seconds between two looks at what grows
MOST_REMEMBERED = 20_000  # events that a reconnecting viewer can catch up on; older ones are in the page

News = tuple[int, str, str]  # line, name and data of an event


class Follower:
    """Reads a run folder, or a folder of runs, for all viewers."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._reader: RunReader | None = None  # of a run
        self._known = KnownRuns()  # of a folder of runs
        self._events: list[News] = []
        self._epoch = 0  # grows when the file is read again from its start
        self._page: tuple[object, Page] | None = None  # with the version that it was made of

    def page(self) -> Page:
        """Return the current page; on a read error, an empty page with a note."""
        with self._lock:
            try:
                self._read()
                return self._current()
            except RefProtoFLError as problem:
                return Page(words(self.place.name), "", (), (), (str(problem),), {"waiting": True})

    def page_json(self) -> bytes:
        return json.dumps(plain(self.page()), separators=(",", ":"), allow_nan=False).encode()

    def _current(self) -> Page:
        """Return the page, rebuilt only if something new was read."""
        reader = self._reader
        version = self._known.version if reader is None else (self._epoch, reader.line)
        if self._page is None or self._page[0] != version:
            if reader is not None:
                self._page = version, run_page(reader.run, live=True)
            else:
                self._page = version, gather([self.place], live=True, known=self._known)
        return self._page[1]

    def _read(self) -> None:
        if self._reader is None and is_run(self.place):
            self._reader = RunReader(self.place)
        if self._reader is None:
            self._read_folder()
        else:
            self._read_run(self._reader)

    def _read_folder(self) -> None:
        """Read all runs of a folder; a change in any of them counts as one event."""
        before = self._known.version
        for run in find_runs([self.place]):
            with suppress(RefProtoFLError):  # the page says what is wrong with it
                self._known.read(run)
        if self._known.version != before:
            self._events.append((len(self._events) + 1, "round", "{}"))

    def _read_run(self, reader: RunReader) -> None:
        before = reader.line
        new = reader.read()
        if reader.line < before + len(new):
            self._epoch += 1
            self._events.clear()
        progress = json.dumps(_brief(progress_of(reader.run))) if new else ""
        self._events += [(number, event["event"], _line(event, progress)) for number, event in new]
        del self._events[:-MOST_REMEMBERED]

    def news(self, after: int, closing: threading.Event) -> Iterator[News]:
        """Yield events after a line as they arrive, and one without a name after each pause without news."""
        epoch = self._epoch
        while not closing.is_set():
            with self._lock:
                with suppress(RefProtoFLError):  # the page says what is wrong
                    self._read()
                if self._epoch != epoch:
                    epoch, after = self._epoch, 0
                    fresh = [(0, "restart", "{}"), *self._events]
                else:
                    fresh = [one for one in self._events if one[0] > after]
            for one in fresh:
                after = one[0]
                yield one
            if not fresh:
                yield after, "", ""
            closing.wait(POLL)


def _line(event: Event, progress: str) -> str:
    """Return the data of an event: the run's progress, without names of clients or files."""
    return f'{{"round": {int(event.get("round", 0))}, "progress": {progress}}}'


def _brief(progress: dict[str, Any]) -> dict[str, Any]:
    return {name: progress[name] for name in ("rounds", "done", "ended", "seconds_left", "budget")}
