"""A process's own memory while it works."""

import threading
from pathlib import Path
from typing import Self

INTERVAL = 0.01  # seconds between looks: a look takes some 50 microseconds


def private_bytes() -> int | None:
    """Memory that is this process's alone, files mapped into it apart; None where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")]
    return 1024 * int(kilobytes[0]) if kilobytes else None


class MemoryWatch:
    """Looks at `private_bytes` again and again while its block runs: `before` it, and the `highest` seen in it."""

    def __init__(self) -> None:
        self.before: int | None = None
        self.highest: int | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self.before = self.highest = private_bytes()
        if self.before is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._note()

    def lap(self) -> int | None:
        """The highest so far; from here on it is looked for anew."""
        self._note()
        seen, self.highest = self.highest, None
        self._note()
        return seen

    def _look(self) -> None:
        while not self._over.wait(INTERVAL):
            self._note()

    def _note(self) -> None:
        seen = private_bytes()
        if seen is not None:
            self.highest = max(self.highest or 0, seen)
