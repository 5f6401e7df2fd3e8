"""Clients' errors in full: for people at this machine, and never sent."""

import re
import traceback
from datetime import datetime
from pathlib import Path

from refprotofl.core import DataError, MachineError, RefProtoFLError, blame, for_terminal
from refprotofl.records import ensure_folder, open_file, read_file

LOGS = "logs"
_HEAD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d round \d+, [^:]*: (?P<words>.*)")
MOST = 1_000_000  # bytes of a log; a client that fails every round says nothing new after that


class ClientLogs:
    """A file for each client in the run folder; it is only for people."""

    def __init__(self, run_folder: Path) -> None:
        self.folder = run_folder / LOGS

    def path(self, client: int) -> Path:
        return self.folder / f"client-{client}.log"

    def write(self, client: int, round: int, verb: str, problem: Exception) -> None:
        head = f"{datetime.now():%Y-%m-%d %H:%M:%S} round {round}, {verb}: {for_terminal(in_a_line(problem))}"
        entry = f"{head}\n{''.join(traceback.format_exception(problem))}\n"
        try:
            ensure_folder(self.folder, private=True)
            with open_file(self.path(client), "ab") as file:
                if file.tell() < MOST:
                    file.write(entry.encode("utf-8", "backslashreplace"))
        except (OSError, DataError, MachineError):
            return  # a log that cannot be written must not change the result

    def last(self, client: int) -> str:
        """Return the first line of the last entry; empty if there is none."""
        try:
            lines = read_file(self.path(client)).decode("utf-8", "replace").splitlines()
        except (OSError, DataError):
            return ""
        heads = [found["words"] for line in lines if (found := _HEAD.fullmatch(line))]
        return heads[-1] if heads else ""


def in_a_line(problem: Exception) -> str:
    """Return an error's text, with the place in the user's own code unless it was refused on purpose."""
    words = str(problem) or type(problem).__name__
    frame = None if isinstance(problem, RefProtoFLError) else blame(problem)
    return words if frame is None else f"{words} ({type(problem).__name__} in {frame.filename}, line {frame.lineno})"
