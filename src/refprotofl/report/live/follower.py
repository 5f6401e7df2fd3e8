"""What is watched: one run or the folder of many, read on as they grow, for however many look on."""

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from refprotofl.core.errors import RefProtoFLError
from refprotofl.records.events import Event
from refprotofl.report.page.collect import KnownRuns, find_runs, gather, is_run
from refprotofl.report.page.curves import progress_of
from refprotofl.report.page.elements import Page, words
from refprotofl.report.page.html import plain
from refprotofl.report.page.run_page import run_page
from refprotofl.report.page.run_reader import RunReader

POLL = 0.5  # seconds between two looks at what grows
MOST_REMEMBERED = 20_000  # events that who comes back is told of; older ones are in the page anyway

News = tuple[int, str, str]  # line, name and data of an event


class Following:
    """The one reader of a place; whoever looks on shares it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._reader: RunReader | None = None  # of a run
        self._known = KnownRuns()  # of a folder of runs
        self._told: list[News] = []
        self._epoch = 0  # grows when the file is read anew
        self._page: tuple[object, Page] | None = None  # with what it was made of

    def page(self) -> Page:
        """As of now; what cannot be read for the moment is a note on an empty page."""
        with self._lock:
            try:
                self._read()
                return self._current()
            except RefProtoFLError as problem:
                return Page(words(self.place.name), "", (), (), (str(problem),), {"waiting": True})

    def page_json(self) -> bytes:
        return json.dumps(plain(self.page()), separators=(",", ":"), allow_nan=False).encode()

    def _current(self) -> Page:
        """Made anew only when there is something new."""
        reader = self._reader
        version = self._known.version if reader is None else (self._epoch, reader.line)
        if self._page is None or self._page[0] != version:
            if reader is not None:
                self._page = version, run_page(reader.told, live=True)
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
        """A folder has no lines of its own: what is new in it counts as one."""
        before = self._known.version
        for run in find_runs([self.place]):
            with suppress(RefProtoFLError):  # the page says what is wrong with it
                self._known.read(run)
        if self._known.version != before:
            self._told.append((len(self._told) + 1, "round", "{}"))

    def _read_run(self, reader: RunReader) -> None:
        before = reader.line
        new = reader.read()
        if reader.line < before + len(new):
            self._epoch += 1
            self._told.clear()
        progress = json.dumps(_brief(progress_of(reader.told))) if new else ""
        self._told += [(number, event["event"], _line(event, progress)) for number, event in new]
        del self._told[:-MOST_REMEMBERED]

    def news(self, after: int, closing: threading.Event) -> Iterator[News]:
        """Events after a line, as they come; one without a name where nothing happened."""
        epoch = self._epoch
        while not closing.is_set():
            with self._lock:
                with suppress(RefProtoFLError):  # the page says what is wrong
                    self._read()
                if self._epoch != epoch:
                    epoch, after = self._epoch, 0
                    fresh = [(0, "restart", "{}"), *self._told]
                else:
                    fresh = [one for one in self._told if one[0] > after]
            for one in fresh:
                after = one[0]
                yield one
            if not fresh:
                yield after, "", ""
            closing.wait(POLL)


def _line(event: Event, progress: str) -> str:
    """What of an event is sent: where the run stands, never what clients or files are called."""
    return f'{{"round": {int(event.get("round", 0))}, "progress": {progress}}}'


def _brief(progress: dict[str, Any]) -> dict[str, Any]:
    return {name: progress[name] for name in ("rounds", "done", "ended", "seconds_left", "budget")}
