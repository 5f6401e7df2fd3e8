"""Early stopping ([stop]): whether a run ends after an evaluation, by the accuracy on samples that clients hold out."""

from typing import Literal

from refprotofl.core import InputError
from refprotofl.experiment import Experiment, Stop
from refprotofl.records import Event, Stopping


def judge(experiment: Experiment, before: Stopping | None, evaluation: Event) -> Stopping | None:
    """Return the record of early stopping after an evaluation; None without [stop]."""
    table: Stop = experiment.stop
    if not table.enabled:
        return None
    accuracy = evaluation["accuracy"].get(table.protocol)
    if accuracy is None:
        known = ", ".join(name for name, value in evaluation["accuracy"].items() if value is not None)
        raise InputError(
            f"stop.protocol = {table.protocol!r} is not scored with method = {experiment.method!r}, only {known}."
        )
    best, best_round, waited = accuracy, evaluation["round"], 0
    if before is not None and accuracy <= before["best"] + table.min_delta:
        best, best_round, waited = before["best"], before["best_round"], before["waited"] + 1
    reached = bool(table.target) and accuracy >= table.target
    given_up = bool(table.patience) and waited >= table.patience
    reason: Literal["", "target", "patience"] = "target" if reached else "patience" if given_up else ""
    return Stopping(best=best, best_round=best_round, waited=waited, reason=reason)


def stop_event(experiment: Experiment, stopping: Stopping | None, round: int) -> list[Event]:
    """Return the event of the round in which the run stops; none in other rounds."""
    if stopping is None or not stopping["reason"]:
        return []
    decided = {name: stopping[name] for name in ("reason", "best", "best_round")}
    scored = {"protocol": experiment.stop.protocol, "scored_on": "validation"}
    return [{"event": "stop", "round": round, **decided, **scored}]
