"""What summary.json holds: the type of a run's summary, and the one reader that checks it."""

import json
from pathlib import Path
from typing import Any, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from refprotofl.errors import DataError, InputError
from refprotofl.experiment import Experiment
from refprotofl.wire.ledger import Totals


class FullModel(TypedDict):
    """For the comparison with full-model FedAvg."""

    parameters: int
    participations: int


class Seconds(TypedDict):
    total: float
    train: float
    evaluate: float


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
    communication: Totals
    full_model: FullModel
    seconds: Seconds
    state_digest: str


_SUMMARY = TypeAdapter(Summary)


def read_summary(path: Path) -> Summary:
    """The summary as it stands in the file, unknown keys too; DataError if it is not one."""
    try:
        summary: Summary = json.loads(path.read_bytes())
        _SUMMARY.validate_python(summary, strict=True)  # checked only: what it returns is in another order
        clients = Experiment.parse(summary["experiment"]).clients
        whole = all(len(values) == clients for values in summary["accuracy_per_client"].values())
    except (ValueError, InputError, RecursionError):  # broken JSON and pydantic's ValidationError are ValueErrors
        whole = False
    if not whole:
        raise DataError(f"{path} is damaged; delete it and run again with --resume.")
    return summary
