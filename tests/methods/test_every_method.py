"""Facts about every method: no two are the same, and formulas equal the ledger."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, run
from refprotofl.federation.local_run import OpenEngine
from refprotofl.methods import METHODS
from refprotofl.records.events import read_traffic
from refprotofl.report.costs import cost_rows

pytestmark = pytest.mark.slow

FROZEN = """
from torch import nn

def backbone(shape):
    layers = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 24), nn.ReLU())
    return layers.requires_grad_(False)
"""

# Every client holds every class, as the formulas take it.
SETTING: dict[str, Any] = {
    "dataset": "digits",
    "train-limit": 300,
    "clients": 3,
    "rounds": 3,
    "partition": "iid",
    "min-size": 10,
    "model": {"name": "mlp", "embedding": 16},
    "public": {"per-class": 2},
    "train": {"batch-size": 32},
    "evaluate": {"every": 3},
}


def experiment_of(method: str, **changed: Any) -> Experiment:
    model = SETTING["model"] | ({"name": "frozen:backbone"} if method == "fedpcl" else {})
    return Experiment.parse(SETTING | {"method": method, "model": model} | changed)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient: OpenEngine) -> Any:
    (tmp_path / "frozen.py").write_text(FROZEN)
    monkeypatch.chdir(tmp_path)

    def finished(method: str, workers: int = 1, **changed: Any) -> RunResult:
        out = tmp_path / f"{method}-{workers}"
        return run(experiment_of(method, **changed), out=out, workers=workers, engine=patient)

    return finished


def test_no_two_methods_are_the_same(play: Any) -> None:
    # Clients of different sizes: with equal steps FedNova is FedAvg.
    digests = {method: play(method, partition="dirichlet").summary["state_digest"] for method in METHODS}
    equal = {
        frozenset(pair) for pair in itertools.combinations(METHODS, 2) if len({digests[name] for name in pair}) == 1
    }
    assert equal == set()
    adapter = play("fedavg", workers=2, partition="dirichlet", share="adapter")
    assert adapter.summary["state_digest"] == digests["lg-fedavg"]  # one method under two names


@pytest.mark.parametrize("method", METHODS)
def test_the_formula_is_what_the_ledger_counts(play: Any, method: str) -> None:
    folder = play(method).folder
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    usual = next(event for event in events if event["event"] == "round" and event["round"] == 2)
    counted = {(client, direction): 0 for client in range(3) for direction in ("up", "down")}
    for row in read_traffic(usual):
        if row["purpose"] == "training":
            values = row["parameters"] + row["prototype_values"] + row["other_values"]
            counted[row["client"], row["direction"]] += values
    cost = next(row for row in cost_rows(experiment_of(method), None) if row.name == method)
    for client in range(3):
        assert counted[client, "up"] == cost.up, cost.formula.up
        assert counted[client, "down"] == cost.down, cost.formula.down
