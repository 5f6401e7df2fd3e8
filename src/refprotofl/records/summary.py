"""What summary.json holds: the type of a run's summary, and the one reader that checks it."""

import json
from pathlib import Path
from typing import Any, NotRequired, cast

import numpy as np
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from refprotofl.core.errors import DataError, InputError
from refprotofl.evaluation.confusion import per_class_accuracy
from refprotofl.experiment import Experiment
from refprotofl.privacy.accounting import Spent
from refprotofl.records.checkpoint import Progress
from refprotofl.records.manifest import Seconds
from refprotofl.records.safe_io import read_json
from refprotofl.wire.ledger import Totals


class FullModel(TypedDict):
    """For the comparison with full-model FedAvg."""

    parameters: int
    participations: int


class Summary(TypedDict):
    """In the order of the file; keys of later versions than the first may be missing in an old run's."""

    schema: int
    experiment: dict[str, Any]
    experiment_hash: str
    rounds_done: int
    accuracy: dict[str, float | None]  # by protocol
    accuracy_per_client: dict[str, list[float | None]]  # by protocol, then by client
    evaluated_clients: list[int]
    trained_clients: int
    confusion: NotRequired[
        list[list[int]]
    ]  # of `personal`, all clients: rows are labels, columns what they were taken for
    accuracy_per_class: NotRequired[list[float | None]]
    facts: NotRequired[dict[str, float | int | str]]
    privacy: NotRequired[Spent]  # where something is protected
    communication: Totals
    full_model: FullModel
    steps: NotRequired[int | None]  # of all clients' optimisers in all rounds; None where some were not counted
    seconds: Seconds
    state_digest: str


_SUMMARY = TypeAdapter(Summary)


def build_summary(
    experiment: Experiment, progress: Progress, state_digest: str, full_parameters: int, spent: Spent | None = None
) -> Summary:
    """Of a run that has come to its last round; `full_parameters` are those of the whole model.

    `spent` is what it cost in privacy, where something is protected.
    """
    scored, seconds = progress.accuracy, progress.seconds
    if not scored:
        raise DataError(f"The checkpoint has {progress.round} rounds and no evaluation, so there is nothing to sum up.")
    taken = scored.get("confusion", [])
    return {
        "schema": 1,
        "experiment": experiment.plain(),
        "experiment_hash": experiment.hash,
        "rounds_done": progress.round,
        "accuracy": scored["accuracy"],
        "accuracy_per_client": scored["per_client"],
        "evaluated_clients": scored["clients"],
        "trained_clients": scored["trained_clients"],
        "confusion": taken,
        "accuracy_per_class": per_class_accuracy(np.array(taken)) if taken else [],
        "facts": scored.get("facts", {}),
        **({} if spent is None else {"privacy": spent}),  # type: ignore[typeddict-item]
        "communication": cast(Totals, progress.communication),
        "full_model": {"parameters": full_parameters, "participations": progress.participations},
        "steps": progress.steps,
        "seconds": Seconds(total=seconds["total"], train=seconds["train"], evaluate=seconds["evaluate"]),
        "state_digest": state_digest,
    }


def summary_bytes(summary: Summary) -> bytes:
    """The file's contents."""
    return (json.dumps(summary, indent=2) + "\n").encode()


def read_summary(path: Path) -> Summary:
    """The summary as it stands in the file, unknown keys too; DataError if it is not one."""
    try:
        return check_summary(read_json(path))
    except (ValueError, RecursionError):  # broken JSON is a ValueError
        raise DataError(f"{path} is damaged; delete it and run again with --resume.") from None


def check_summary(found: Any) -> Summary:
    """The same, if it is a summary; else a ValueError."""
    _SUMMARY.validate_python(found, strict=True)  # checked only: what it returns is in another order
    summary = cast(Summary, found)
    try:
        clients = Experiment.parse(summary["experiment"]).clients
    except InputError as problem:
        raise ValueError(str(problem)) from None
    if any(len(values) != clients for values in summary["accuracy_per_client"].values()):
        raise ValueError(f"it does not tell of all {clients} clients")
    return summary
