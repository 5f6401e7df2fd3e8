"""Callbacks: objects that observe a run."""

from pathlib import Path
from typing import Any

from refprotofl.experiment import Experiment
from refprotofl.records import Event
from refprotofl.wire import Direction, Purpose


class Callback:
    """Called at each step of a run. The methods of this base class do nothing."""

    def on_start(self, experiment: Experiment, folder: Path, workers: int, rounds_done: int) -> None:
        """Called before the first round of this process; `rounds_done` rounds are committed already."""

    def on_reuse(self) -> None:
        """Called instead of `on_start` if the run was finished before."""

    def on_note(self, sentence: str) -> None:
        """Called with a sentence that the user should read, for example about the data."""

    def on_message(
        self, direction: Direction, phase: str, client: int, round: int, data: bytes, purpose: Purpose
    ) -> None:
        """Called with each encoded message between server and client."""

    def on_round(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        """Called after a round is committed, with its event; `accuracy` is its evaluation, if there was one."""

    def on_close(self) -> None:
        """Called when the run ends, whether it finished or failed."""
