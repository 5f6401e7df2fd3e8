"""A deployed run's progress: lines for people, and a small state file that `deploy status` reads."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from refprotofl.core import MachineError
from refprotofl.deploy.log import log
from refprotofl.engines import MEANINGS, Code
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback
from refprotofl.records import Event, write_whole

SHOWN = ("personal", "own", "global")  # the accuracies in a round's line


@dataclass(frozen=True)
class Wait:
    """A client that the run waits for, by its label. `since` is in seconds since 1970."""

    client: str
    verb: str
    since: float

    def __str__(self) -> str:
        return f"{self.client} since {time.strftime('%H:%M:%S', time.localtime(self.since))} ({self.verb})"


@dataclass(frozen=True)
class Absence:
    client: str
    round: int
    reason: str


class StatusCallback(Callback):
    """Prints the progress of a deployed run, and writes it to the state file `path` if there is one."""

    def __init__(self, path: Path | None = None, say: Callable[[str], None] | None = None) -> None:
        self._path = path
        self._say: Callable[..., None] = log if say is None else lambda line, *_, **__: say(line)
        self._state: dict[str, Any] = {"round": 0, "rounds": 0, "out": ""}
        self._waits: list[Wait] = []
        self._absent: dict[int, Absence] = {}

    def on_start(self, experiment: Experiment, folder: Path, workers: int, rounds_done: int) -> None:
        self._state |= {"rounds": experiment.rounds, "round": rounds_done, "out": str(folder)}
        resumed = f", resumed after round {rounds_done}" if rounds_done else ""
        planned = f"{experiment.clients} clients, {experiment.rounds} rounds"
        self._say(f"{experiment.method}, {planned}{resumed}; run folder {folder}")
        self._write()

    def on_note(self, sentence: str) -> None:
        self._say(sentence)

    def waiting(self, waits: list[Wait]) -> None:
        """Show which nodes are waited for, whenever that changes."""
        if waits == self._waits:
            return
        new = [wait for wait in waits if wait not in self._waits]
        self._waits = waits
        if new:
            self._say(f"Waiting for {'; '.join(map(str, new))}", "waiting", nodes=[asdict(wait) for wait in new])
        self._write()

    def absent(self, client: int, label: str, round: int, code: Code) -> None:
        """Show that a client has no answer in this round, and why."""
        absence = Absence(label, round, MEANINGS[code])
        if self._absent.get(client) != absence:
            line = f"Absent from round {round}: {label}: {absence.reason}"
            self._say(line, "absent", client=client, round=round, code=code)
            self._absent[client] = absence
            self._write()

    def on_round(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        lacking = len(event["asked"]) - len(event["participants"])
        parts = [f"round {event['round']} of {self._state['rounds']}", f"{event['seconds']:.1f} s"]
        if lacking:
            parts.append(f"{lacking} absent")
        for name in SHOWN if accuracy else ():
            value = (accuracy or {})["accuracy"].get(name)
            if value is not None:
                parts.append(f"{name} {100 * value:.2f} %")
        fields = {name: event[name] for name in ("round", "seconds", "asked", "participants", "state_digest")}
        self._say(", ".join(parts), "round", **fields, accuracy=(accuracy or {}).get("accuracy"))
        self._state["round"], self._waits = event["round"], []
        here = set(event["participants"])
        self._absent = {client: one for client, one in self._absent.items() if client not in here}
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        found = {
            **self._state,
            "waiting": [asdict(wait) for wait in self._waits],
            "absent": [asdict(one) for one in self._absent.values()],
        }
        with suppress(MachineError):  # a display must not end the run
            write_whole(self._path, json.dumps(found).encode())
