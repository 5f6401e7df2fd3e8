"""A tampered answer costs no other client its turn: every method, verb and field.

A twentieth of the cases by default; all of them with REFPROTOFL_FAULTS=full, which `make test-faults` sets.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.altering import Altered
from tests.conftest import Tried
from tests.methods.test_every_method import FROZEN
from tests.tiny import tiny_keys
from torch import Tensor

from refprotofl.core.errors import RunError
from refprotofl.engines.engine import Engine, Request, Result
from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, run
from refprotofl.federation.local_run import OpenEngine, Site, open_engine
from refprotofl.methods import METHODS
from refprotofl.methods.base.schema import is_lost
from refprotofl.records.folder import read_events
from refprotofl.wire import Message, Sparse, WireError, decode, encode

CULPRIT = 1
TINY = tiny_keys()
EVERYTHING = os.environ.get("REFPROTOFL_FAULTS") == "full"
ELSEWHERE = {"centralised"}  # no client trains
FIELDLESS: dict[str, Callable[[Message], Message]] = {
    "nothing": lambda answer: {},
    "a field more": lambda answer: {**answer, "more": 1},
    "an empty tensor": lambda answer: {"x": torch.zeros(0)},
    "lost": lambda answer: {"lost": True},
    "lost and more": lambda answer: {"lost": True, "more": 1},
}


def resized(value: Tensor) -> Tensor:
    return torch.cat([value.reshape(-1), value.reshape(-1)])


ON_FIELDS: dict[str, Callable[[Any], Any]] = {
    "missing": lambda value: None,
    "text": lambda value: "x",
    "a large whole number": lambda value: 2**62,
    "a negative number": lambda value: -value if isinstance(value, int | float) else -1,
    "an empty tensor": lambda value: torch.zeros(0),
    "wider": lambda value: value.double() if isinstance(value, Tensor) else 0.5,
    "longer": lambda value: resized(value) if isinstance(value, Tensor) else value,
    "largest whole numbers": lambda value: (
        torch.full_like(value, torch.iinfo(value.dtype).max)
        if isinstance(value, Tensor) and not value.is_floating_point() and value.dtype != torch.bool
        else 2**31 - 1
    ),
    "elsewhere": lambda value: (
        Sparse(value.indices, value.values, value.size + 1) if isinstance(value, Sparse) else value
    ),
}


def tampering(verb: str, change: Callable[[Result], Result]) -> OpenEngine:
    """An engine in which `change` alters the culprit's answers to one verb."""

    def alter(request: Request, result: Result) -> Result:
        honestly_lost = bool(result.payload) and is_lost(
            decode(result.payload)
        )  # its state was discarded with its answer
        chosen = (request.client, request.verb) == (CULPRIT, verb)
        return change(result) if chosen and not honestly_lost else result

    return lambda site: Altered(open_engine(site), alter)


def with_message(change: Callable[[Message], Message]) -> Callable[[Result], Result]:
    """Encode a message; return bytes that are no message if it cannot be encoded."""

    def tampered(result: Result) -> Result:
        try:
            payload = encode(change(decode(result.payload)))
        except WireError:
            payload = b"\xff" * 32
        return dataclasses.replace(result, payload=payload)

    return tampered


def on_field(name: str, change: Callable[[Any], Any]) -> Callable[[Message], Message]:
    def changed(answer: Message) -> Message:
        if name not in answer:
            return answer
        value = change(answer[name])
        rest = {key: one for key, one in answer.items() if key != name}
        return rest if value is None else {**rest, name: value}

    return changed


class Seen:
    """The fields that a client of a method answers with, by verb."""

    def __init__(self) -> None:
        self.fields: dict[str, set[str]] = {}

    def __call__(self, site: Site) -> Engine:
        return Altered(open_engine(site), self.note)

    def note(self, request: Request, result: Result) -> Result:
        if result.payload:
            self.fields.setdefault(request.verb, set()).update(decode(result.payload))
        return result


def experiment(method: str) -> Experiment:
    model = TINY["model"] | ({"name": "frozen_and_tampered:backbone"} if method == "fedpcl" else {})
    return Experiment.parse({**TINY, "method": method, "model": model})


@pytest.fixture(autouse=True)
def _pretrained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backbone that is not trained, as FedPCL needs it."""
    (tmp_path / "frozen_and_tampered.py").write_text(FROZEN)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, set[str]]]:
    known: dict[str, dict[str, set[str]]] = {}

    def fields(method: str) -> dict[str, set[str]]:
        if method not in known:
            seen = Seen()
            run(experiment(method), out=tmp_path_factory.mktemp("honest") / "run", engine=seen)
            known[method] = seen.fields
        return known[method]

    return fields


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], RunResult]:
    """A run in which the culprit has no answer to a verb, each once."""
    known: dict[tuple[str, str], RunResult] = {}

    def without(method: str, verb: str) -> RunResult:
        if (method, verb) not in known:
            engine = tampering(verb, lambda result: Result(code="failed"))
            known[method, verb] = run(experiment(method), out=tmp_path_factory.mktemp("silent") / "run", engine=engine)
        return known[method, verb]

    return without


def chosen(*case: str) -> bool:
    return EVERYTHING or hashlib.sha256("/".join(case).encode()).digest()[0] < 13


@pytest.mark.parametrize("method", sorted({*METHODS} - ELSEWHERE))
def test_tampered_answers_harm_their_sender_alone(
    method: str,
    honest: Callable[[str], dict[str, set[str]]],
    silent: Callable[[str, str], RunResult],
    tmp_path: Path,
    tried: Tried,
) -> None:
    count = 0
    for verb, fields in honest(method).items():
        cases = {name: change for name, change in FIELDLESS.items() if chosen(method, verb, name)}
        for name in sorted(fields):
            for kind, change in ON_FIELDS.items():
                if chosen(method, verb, name, kind):
                    cases[f"{name}: {kind}"] = on_field(name, change)
        for case, change in cases.items():
            count += 1
            _check(method, verb, case, change, silent, tmp_path / str(count))
    assert count
    tried("tampered answers, each in a run", count)


def _check(
    method: str,
    verb: str,
    case: str,
    change: Callable[[Message], Message],
    silent: Callable[[str, str], RunResult],
    out: Path,
) -> None:
    case_name = f"{method}, {verb}, {case}"
    try:
        finished = run(experiment(method), out=out, engine=tampering(verb, with_message(change)))
    except RunError as problem:
        raise AssertionError(f"{case_name} stopped the run: {problem}") from problem
    failures = [event for event in read_events(out) if event["event"] == "client-failed"]
    assert {event["client"] for event in failures} <= {CULPRIT}, case_name
    refused = {event["round"] for event in failures}
    if refused == {1, 2} and case != "lost":  # who says that its store is lost is believed, and sent everything anew
        assert finished.summary["state_digest"] == silent(method, verb).summary["state_digest"], case_name
    for value in finished.summary["accuracy"].values():
        assert value is None or 0 <= value <= 1, case_name
