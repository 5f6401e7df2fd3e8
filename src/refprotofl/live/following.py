"""What is watched: one run or the folder of many, read on as they grow, for however many look on."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from refprotofl.errors import RefProtoFLError
from refprotofl.records.events import Event
from refprotofl.report.page.gathering import gather, is_run
from refprotofl.report.page.html import plain
from refprotofl.report.page.parts import Page, words
from refprotofl.report.page.progress import progress_of
from refprotofl.report.page.reading import RunReader
from refprotofl.report.page.run_page import run_page

POLL = 0.5  # seconds between two looks at what grows
FRESH = 1.0  # seconds for which the page of a whole folder is good
MOST_REMEMBERED = 20_000  # events that who comes back is told of; older ones are in the page anyway


class Following:
    """The one reader of a place; whoever looks on shares it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._lock = threading.Lock()
        self._reader: RunReader | None = None
        self._told: list[tuple[int, str, str]] = []  # line, name and data of each event that may be sent
        self._epoch = 0  # grows when the file is read anew
        self._page: tuple[float, int, Page] | None = None

    def page(self) -> Page:
        """As of now; what cannot be read for the moment is a note on an empty page."""
        with self._lock:
            try:
                return self._current()
            except RefProtoFLError as problem:
                return Page(words(self.place.name), "", (), (), (str(problem),), {"waiting": True})

    def page_json(self) -> bytes:
        return json.dumps(plain(self.page()), separators=(",", ":"), allow_nan=False).encode()

    def _current(self) -> Page:
        self._read()
        now = time.monotonic()
        line = self._reader.line if self._reader is not None else 0
        if self._page is None or self._page[1] != line or (self._reader is None and now - self._page[0] > FRESH):
            page = gather([self.place], live=True) if self._reader is None else run_page(self._reader.told, live=True)
            self._page = (now, line, page)
        return self._page[2]

    def _read(self) -> None:
        """A folder of runs has no lines of its own: its page is gathered anew."""
        if self._reader is None:
            if not is_run(self.place):
                return
            self._reader = RunReader(self.place)
        before = self._reader.line
        new = self._reader.read()
        if self._reader.line < before + len(new):
            self._epoch += 1
            self._told.clear()
        progress = json.dumps(_brief(progress_of(self._reader.told))) if new else ""
        self._told += [(number, event["event"], _line(event, progress)) for number, event in new]
        del self._told[:-MOST_REMEMBERED]

    def news(self, after: int, closing: threading.Event) -> Iterator[tuple[int, str, str]]:
        """Events after a line, as they come: their line, name and data; an empty name where nothing happened."""
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
                watching_folder = self._reader is None
            for one in fresh:
                after = one[0]
                yield one
            if watching_folder:
                yield 0, "round", "{}"
            elif not fresh:
                yield after, "", ""
            closing.wait(POLL if not watching_folder else 2 * FRESH)


def _line(event: Event, progress: str) -> str:
    """What of an event is sent: where the run stands, never what clients or files are called."""
    return f'{{"round": {int(event.get("round", 0))}, "progress": {progress}}}'


def _brief(progress: dict[str, Any]) -> dict[str, Any]:
    return {name: progress[name] for name in ("rounds", "done", "ended", "seconds_left", "budget")}
