"""summary.json: its schema, and the one reader that checks it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired, cast

import numpy as np
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from refprotofl.core import DataError, InputError
from refprotofl.evaluation import per_class_accuracy
from refprotofl.experiment import Experiment
from refprotofl.privacy import Spent
from refprotofl.records.manifest import Seconds, Stopping
from refprotofl.records.safe_io import read_json
from refprotofl.wire import Totals

if TYPE_CHECKING:
    from refprotofl.records.checkpoint import Progress


class FullModel(TypedDict):
    """Reference values for the comparison with full-model FedAvg."""

    parameters: int
    participations: int


class StopRecord(TypedDict):
    """The end of a run that may stop early."""

    round: int  # the last one
    reason: Literal["target", "patience", "rounds"]  # rounds: it did not stop early
    protocol: str
    scored_on: Literal["validation"]
    best: float
    best_round: int


class Summary(TypedDict):
    """The summary of a finished run, in the order of the file."""

    schema: int
    experiment: dict[str, Any]
    experiment_hash: str
    rounds_done: int
    stop: NotRequired[StopRecord]  # with [stop]
    accuracy: dict[str, float | None]  # by protocol
    metrics: NotRequired[dict[str, dict[str, float]]]  # by protocol and name; not every kept result has them
    accuracy_per_client: dict[str, list[float | None]]  # by protocol, then by client
    evaluated_clients: list[int]
    trained_clients: int
    confusion: NotRequired[list[list[int]]]  # of `personal`, all clients: label, predicted; left out of kept results
    accuracy_per_class: list[float | None]
    facts: dict[str, float | int | str]
    privacy: NotRequired[Spent]  # where something is protected
    communication: Totals
    full_model: FullModel
    steps: int | None  # of all clients' optimisers in all rounds; None where some were not counted
    seconds: Seconds
    state_digest: str


_SUMMARY = TypeAdapter(Summary)


def build_summary(
    experiment: Experiment, progress: "Progress", state_digest: str, full_parameters: int, spent: Spent | None = None
) -> Summary:
    """Return the summary of a run after its last round; `full_parameters` are those of the whole model.

    `spent` is the privacy spent, where something is protected.
    """
    evaluation, seconds = progress.accuracy, progress.seconds
    if not evaluation:
        raise DataError(f"The checkpoint has {progress.round} rounds and no evaluation to summarise.")
    confusion = evaluation["confusion"]
    return {
        "schema": 1,
        "experiment": experiment.plain(),
        "experiment_hash": experiment.hash,
        "rounds_done": progress.round,
        **({} if progress.stopping is None else {"stop": _stop(experiment, progress, progress.stopping)}),  # type: ignore[typeddict-item]
        "accuracy": evaluation["accuracy"],
        "metrics": evaluation["metrics"],
        "accuracy_per_client": evaluation["per_client"],
        "evaluated_clients": evaluation["clients"],
        "trained_clients": evaluation["trained_clients"],
        "confusion": confusion,
        "accuracy_per_class": per_class_accuracy(np.array(confusion)),
        "facts": evaluation["facts"],
        **({} if spent is None else {"privacy": spent}),  # type: ignore[typeddict-item]
        "communication": cast(Totals, progress.communication),
        "full_model": {"parameters": full_parameters, "participations": progress.participations},
        "steps": progress.steps,
        "seconds": Seconds(total=seconds["total"], train=seconds["train"], evaluate=seconds["evaluate"]),
        "state_digest": state_digest,
    }


def _stop(experiment: Experiment, progress: "Progress", stopping: Stopping) -> StopRecord:
    return {
        "round": progress.round,
        "reason": stopping["reason"] or "rounds",
        "protocol": experiment.stop.protocol,
        "scored_on": "validation",
        "best": stopping["best"],
        "best_round": stopping["best_round"],
    }


def summary_bytes(summary: Summary) -> bytes:
    """Return the contents of the file."""
    return (json.dumps(summary, indent=2) + "\n").encode()


def read_summary(path: Path) -> Summary:
    """Return the summary in a file, unknown keys included; raise DataError if it is not one."""
    try:
        return check_summary(read_json(path))
    except (ValueError, RecursionError):  # broken JSON is a ValueError
        raise DataError(f"{path} is damaged; delete it and run again with --resume.") from None


def check_summary(found: Any) -> Summary:
    """Return the object as a summary; raise ValueError if it is not one."""
    _SUMMARY.validate_python(found, strict=True)  # the validated copy would be in another order
    summary = cast(Summary, found)
    try:
        clients = Experiment.parse(summary["experiment"]).clients
    except InputError as problem:
        raise ValueError(str(problem)) from None
    if any(len(values) != clients for values in summary["accuracy_per_client"].values()):
        raise ValueError(f"it does not have all {clients} clients")
    return summary


def fedavg_bytes(summary: Summary, parameters: int) -> tuple[int, int]:
    """Return the bytes up and down of uncompressed FedAvg of this many parameters, for the run's clients and rounds.

    The first broadcast costs nothing where clients derive the initial weights from the seed.
    """
    ran = Experiment.parse(summary["experiment"])
    up = 4 * parameters * summary["full_model"]["participations"]
    first = min(ran.cohort_size, summary["full_model"]["participations"]) if ran.first_weights == "seed" else 0
    return up, up - 4 * parameters * first
