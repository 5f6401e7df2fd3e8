"""The observers of runs that are started from Python: callbacks, and the log `refprotofl`."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refprotofl.core import percent
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback
from refprotofl.methods import find_method
from refprotofl.records import Event
from refprotofl.studies import Trial
from refprotofl.wire import Direction, Purpose

Callbacks = Callback | Sequence[Callback] | None

log = logging.getLogger("refprotofl")


class LogCallback(Callback):
    """Writes the start, the evaluations and the notes of a run to the log `refprotofl`."""

    def on_start(self, experiment: Experiment, folder: Path, workers: int, rounds_done: int) -> None:
        after = f" after round {rounds_done}" if rounds_done else ""
        log.info("%s on %s, seed %d, in %s%s", experiment.method, experiment.dataset, experiment.seed, folder, after)
        for warning in find_method(experiment.method).warnings(experiment):
            log.warning("%s", warning)

    def on_reuse(self) -> None:
        log.info("the run was finished before")

    def on_note(self, sentence: str) -> None:
        log.info("%s", sentence)

    def on_round(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        if accuracy is not None:
            log.info("round %d: personal %s", event["round"], percent(accuracy["accuracy"]["personal"]))


class Several(Callback):
    """Calls several callbacks in their order."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks

    def on_start(self, experiment: Experiment, folder: Path, workers: int, rounds_done: int) -> None:
        for one in self._callbacks:
            one.on_start(experiment, folder, workers, rounds_done)

    def on_reuse(self) -> None:
        for one in self._callbacks:
            one.on_reuse()

    def on_note(self, sentence: str) -> None:
        for one in self._callbacks:
            one.on_note(sentence)

    def on_message(
        self, direction: Direction, phase: str, client: int, round: int, data: bytes, purpose: Purpose
    ) -> None:
        for one in self._callbacks:
            one.on_message(direction, phase, client, round, data, purpose)

    def on_round(self, event: Event, accuracy: dict[str, Any] | None) -> None:
        for one in self._callbacks:
            one.on_round(event, accuracy)

    def on_close(self) -> None:
        for one in self._callbacks:
            one.on_close()


def watched_by(callback: Callbacks) -> Callback:
    """Return one callback: the user's, and the log."""
    given = [callback] if isinstance(callback, Callback) else list(callback or ())
    return Several([LogCallback(), *given])


class Watched:
    """Lets the same callbacks observe all runs of a study."""

    def __init__(self, callback: Callbacks) -> None:
        self._callback = watched_by(callback)

    def __call__(self, trials: Sequence[Trial]) -> "Watched":
        log.info("%d runs", len(trials))
        return self

    def watch(self, trial: Trial) -> Callback:
        return self._callback

    def on_close(self) -> None: ...
