"""Whoever wants to see a run as it goes on."""

from pathlib import Path
from typing import Any

from refprotofl.experiment import Experiment
from refprotofl.wire.ledger import Direction, Purpose

Event = dict[str, Any]


class Callback:
    """Told of what happens in a run. The base is told and says nothing."""

    def started(self, experiment: Experiment, folder: Path, workers: int, rounds_done: int) -> None: ...

    def reused(self) -> None:
        """The run was finished before, so nothing is begun."""

    def noted(self, sentence: str) -> None:
        """Something about the data that a person should know."""

    def crossed(self, direction: Direction, phase: str, client: int, round: int, data: bytes, purpose: Purpose) -> None:
        """A message crossed between server and client."""

    def committed(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        """A round is on disk; `accuracy` if it was evaluated."""

    def close(self) -> None:
        """The run is over, or has failed."""
