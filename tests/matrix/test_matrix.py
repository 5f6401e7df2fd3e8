"""Every method under every engine, fault and way of training, as the catalogue has them: a new method is among them.

`make test` runs one case of each method: the commit's hash decides which, so that a commit always has the same cases
and other commits have others. `make test-matrix` sets REFPROTOFL_MATRIX=all and runs every case.
"""

import dataclasses
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.altering import Altered
from tests.methods.test_every_method import FROZEN
from tests.tiny import tiny_keys

from refprotofl.core import InputError
from refprotofl.engines.engine import Request, Result
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, RunResult, run
from refprotofl.federation.local_run import OpenEngine, Site
from refprotofl.methods import METHODS
from refprotofl.records.folder import read_events
from refprotofl.wire import Message, decode, encode

ROOT = Path(__file__).parents[2]
CULPRIT, ROUND = 1, 2  # the client and the round of a fault
ENGINES = {"one process": 1, "two workers": 2}


def unanswered(result: Result) -> Result:
    return Result(code="failed")


def garbled(result: Result) -> Result:
    return dataclasses.replace(result, payload=b"\xff" * 32)


def huge(result: Result) -> Result:
    def altered(value: Any) -> Any:
        return torch.full_like(value, 1e30) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    answer: Message = {name: altered(value) for name, value in decode(result.payload).items()}
    return dataclasses.replace(result, payload=encode(answer))


Fault = Callable[[Result], Result] | None
FAULTS: dict[str, Fault] = {
    "none": None,
    "interrupted": None,
    "no answer": unanswered,
    "garbled answer": garbled,
    "huge numbers": huge,
}

OPTIONS: dict[str, Any] = {  # of [train]
    "optimizer": "adam",
    "schedule": "linear",
    "grad-clip": 1.0,
    "local-steps": 3,
    "augment": ["crop", "flip"],
}
TRAININGS: dict[str, dict[str, Any]] = {"by default": {}, "with all options": OPTIONS}

Case = tuple[str, str, str, str]  # method, engine, fault, training
COMBINATIONS = [(engine, fault, training) for training in TRAININGS for engine in ENGINES for fault in FAULTS]


def turn() -> int:
    """The number of the combination that the first method has at this commit; without git the first."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return int(found.stdout.strip() or "0", 16)


def share(number: int) -> list[Case]:
    """One case of each method: the methods go through the combinations in turn, from that of the number on."""
    return [(method, *COMBINATIONS[(number + i) % len(COMBINATIONS)]) for i, method in enumerate(METHODS)]


def everything() -> list[Case]:
    return [(method, *combination) for method in METHODS for combination in COMBINATIONS]


CASES = everything() if os.environ.get("REFPROTOFL_MATRIX") == "all" else share(turn())


def test_the_shares_of_successive_turns_are_the_whole_matrix() -> None:
    taken = [case for number in range(len(COMBINATIONS)) for case in share(number)]
    assert sorted(taken) == sorted(everything())
    assert {method for method, *_ in share(turn())} == {*METHODS}


class Interrupted(Exception):
    """The process ends after a round."""


class Mortal(Callback):
    def on_round(self, event: Any, scores: Any) -> None:
        raise Interrupted


@pytest.fixture(autouse=True)
def _pretrained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backbone that is not trained, as FedPCL needs it, and no waiting for the disk."""
    (tmp_path / "frozen_in_matrix.py").write_text(FROZEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def experiment_of(method: str, options: dict[str, Any] | None = None) -> Experiment:
    model = {"name": "mlp", "norm": "none", "embedding": 8}
    model |= {"name": "frozen_in_matrix:backbone"} if method == "fedpcl" else {}
    return Experiment.parse(tiny_keys(method=method, model=model, train={"batch-size": 16, **(options or {})}))


def allows(method: str, name: str) -> bool:
    try:
        experiment_of(method, {name: OPTIONS[name]})
    except InputError:
        return False
    return True


def trained(method: str, training: str) -> Experiment:
    return experiment_of(method, {name: value for name, value in TRAININGS[training].items() if allows(method, name)})


def test_only_formulas_that_count_sgds_steps_refuse_options_of_training() -> None:
    refused = {(method, name) for method in METHODS for name in OPTIONS if not allows(method, name)}
    assert refused == {("fednova", "optimizer"), ("scaffold", "optimizer"), ("scaffold", "grad-clip")}


def play(experiment: Experiment, engine: OpenEngine, workers: int, fault: Fault, out: Path) -> RunResult:
    def opened(site: Site) -> Any:
        def alter(request: Request, result: Result) -> Result:
            chosen = (request.client, request.round, request.verb) == (CULPRIT, ROUND, "train")
            return fault(result) if fault is not None and chosen and result.payload else result

        return Altered(engine(site), alter)

    return run(experiment, out=out, workers=workers, engine=opened)


def failures(finished: RunResult) -> set[tuple[int, int]]:
    events = [event for event in read_events(finished.folder) if event["event"] == "client-failed"]
    return {(event["client"], event["round"]) for event in events}


@pytest.mark.slow
@pytest.mark.parametrize(("method", "engine", "fault", "training"), CASES)
def test_a_method_under_an_engine_and_a_fault(
    method: str, engine: str, fault: str, training: str, tmp_path: Path, patient: OpenEngine
) -> None:
    """The result is that of one process, in which a client that sends nonsense did not answer."""
    experiment, workers, out = trained(method, training), ENGINES[engine], tmp_path / "run"
    if fault == "interrupted":
        with pytest.raises(Interrupted):
            run(experiment, out=out, workers=1, engine=patient, callback=Mortal())
        found = run(experiment, out=out, workers=workers, engine=patient, resume=True)
    else:
        found = play(experiment, patient, workers, FAULTS[fault], out)
    faulty = FAULTS[fault] is not None and bool(failures(found))
    expected = play(experiment, patient, 1, unanswered if faulty else None, tmp_path / "expected")
    assert found.summary["state_digest"] == expected.summary["state_digest"]
    assert found.summary["accuracy"] == expected.summary["accuracy"]
    assert failures(found) == failures(expected)
    assert failures(found) == ({(CULPRIT, ROUND)} if faulty else set())
    asked = METHODS[method].pooled is False
    assert faulty == (asked and fault in ("no answer", "garbled answer")) or fault == "huge numbers"
