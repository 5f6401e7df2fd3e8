"""A client's scores count only within what it can have been tested on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.faults.test_tampered_answers import CULPRIT, TINY, tampering, with_message

from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.records.folder import read_events
from refprotofl.wire import Message

PERFECT: dict[str, Callable[[Message], Message]] = {
    "tested": lambda said: {**_perfect(said, "tested", 21), "confusion": _diagonal(21)},  # of 20 test samples
    "own_tested": lambda said: _perfect(said, "own_tested", int(said["own_tested"]) + 1),  # type: ignore[arg-type]
    "2^62": lambda said: _perfect(said, "own_tested", 2**62),
}


def _perfect(said: Message, out_of: str, count: int) -> Message:
    names = ["personal"] if out_of == "tested" else ["own"]
    return {**said, out_of: count, **dict.fromkeys(names, count)}


def _diagonal(count: int) -> torch.Tensor:
    matrix = torch.zeros(10, 10, dtype=torch.int32)
    matrix[0, 0] = count
    return matrix


@pytest.mark.parametrize("claim", PERFECT)
def test_more_correct_answers_than_there_are_samples_do_not_count(claim: str, tmp_path: Path) -> None:
    experiment: dict[str, Any] = {**TINY, "method": "fedavg"}
    engine = tampering("evaluate", with_message(PERFECT[claim]))
    finished = run(Experiment.parse(experiment), out=tmp_path / "run", engine=engine)
    (failed,) = [event for event in read_events(finished.folder) if event["event"] == "client-failed"]
    assert failed["client"] == CULPRIT
    assert failed["reason"].startswith("evaluate: ")
    for scores in finished.summary["accuracy_per_client"].values():
        assert scores[CULPRIT] is None
