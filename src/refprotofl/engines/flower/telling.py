"""A run's progress as lines, which Flower shows with --stream and keeps in its log."""

from pathlib import Path
from typing import Any

from refprotofl.basics.escapes import for_terminal
from refprotofl.experiment import Experiment
from refprotofl.simulation.watching import Event, Watcher


class RoundLines(Watcher):
    def __init__(self) -> None:
        self._rounds = 0

    def started(self, experiment: Experiment, folder: Path, workers: int, rounds_done: int) -> None:
        self._rounds = experiment.rounds
        goes_on = f", going on after round {rounds_done}" if rounds_done else ""
        planned = f"{experiment.clients} clients, {experiment.rounds} rounds"
        say(f"{experiment.method}, {planned}{goes_on}; run folder {folder}")

    def noted(self, sentence: str) -> None:
        say(sentence)

    def committed(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        absent = len(event["asked"]) - len(event["participants"])
        parts = [f"round {event['round']} of {self._rounds}", f"{event['seconds']:.1f} s"]
        if absent:
            parts.append(f"{absent} absent")
        for name in ("personal", "own", "global") if accuracy else ():
            value = (accuracy or {})["accuracy"].get(name)
            if value is not None:
                parts.append(f"{name} {100 * value:.2f} %")
        say(", ".join(parts))


def say(line: str) -> None:
    print(for_terminal(line), flush=True)
