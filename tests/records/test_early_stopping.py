"""Early stopping: when a run stops, what is on record, and that an interrupted run stops in the same round."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny_experiment

from refprotofl import Callback, Experiment
from refprotofl.core import InputError
from refprotofl.experiment.sections import Stop
from refprotofl.federation import run
from refprotofl.federation.stopping import judge
from refprotofl.records.manifest import Stopping
from refprotofl.records.verify import verify_run

OFTEN = {"every": 1, "test-limit": 20}


def decided(accuracies: list[float], **stop: Any) -> list[Stopping]:
    """Return the records after each evaluation, up to the one that stops the run."""
    experiment = Experiment.parse({"stop": stop})
    found: list[Stopping] = []
    for round, accuracy in enumerate(accuracies, 1):
        event = {"round": round, "accuracy": {"personal": accuracy, "global": None}}
        after = judge(experiment, found[-1] if found else None, event)
        assert after is not None
        found.append(after)
        if after["reason"]:
            break
    return found


def test_patience_counts_evaluations_in_a_row_that_are_not_better() -> None:
    found = decided([0.5, 0.6, 0.6, 0.55, 0.7, 0.7, 0.6, 0.9], patience=2)
    assert [one["waited"] for one in found] == [0, 0, 1, 2]
    assert found[-1] == {"best": 0.6, "best_round": 2, "waited": 2, "reason": "patience"}
    longer = decided([0.5, 0.6, 0.6, 0.55, 0.7, 0.7, 0.6, 0.5], patience=3)
    assert (len(longer), longer[-1]["best_round"]) == (8, 5)


def test_a_gain_of_min_delta_is_not_better() -> None:
    gains = [0.5, 0.5625, 0.75]  # exact in binary
    assert [one["waited"] for one in decided(gains, patience=5, **{"min-delta": 0.0625})] == [0, 1, 0]


def test_a_target_stops_at_the_first_evaluation_that_reaches_it() -> None:
    found = decided([0.5, 0.75, 0.9], target=0.75, patience=9)
    assert (len(found), found[-1]["reason"]) == (2, "target")


def test_a_protocol_that_the_method_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="'global' is not scored with method = 'refprotofl', only personal"):
        decided([0.5], target=0.9, protocol="global")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"stop": {"target": 0.5}, "validation": 0.0}, "stopping needs samples that clients hold out"),
        ({"stop": {"target": 1.5}}, "too large; allowed: accuracy at which a run stops"),
        ({"stop": {"min-delta": 0.1, "target": 0.5}}, "which is for patience"),
        ({"stop": {"protocol": "own"}}, "neither patience nor target"),
        ({"stop": {"patience": 2}, "privacy": {"unit": "sample"}}, "exact scores"),
        ({"stop": {"patience": 2}, "finetune": {"epochs": 1}, "method": "fedavg"}, "which follows the last round"),
        ({"stop": {"patience": 2}, "evaluate": {"every": 50}}, "only the last of 50 rounds is evaluated"),
    ],
)
def test_what_contradicts_stopping_is_refused_with_a_sentence(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Experiment.parse(keys)


def test_clients_hold_out_a_tenth_unless_the_experiment_says_how_many() -> None:
    assert Experiment.parse({"stop": {"patience": 2}}).validation == 0.1
    assert Experiment.parse({"stop": {"patience": 2}, "validation": 0.3}).validation == 0.3
    assert Experiment().validation == 0
    assert Stop().plain() == {}


class Interrupted(Exception):
    pass


class After(Callback):
    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, event: Any, scores: Any) -> None:
        if event["round"] == self.round:
            raise Interrupted


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def test_a_run_stops_on_record_and_a_resumed_one_in_the_same_round(tmp_path: Path) -> None:
    """No accuracy is better by more than a half: the run stops at the third evaluation."""
    experiment = tiny_experiment(
        method="fedavg", rounds=6, validation=0.3, stop={"patience": 2, "min-delta": 0.9}, evaluate=OFTEN
    )
    summary = run(experiment, out=tmp_path / "whole").summary
    assert summary["rounds_done"] == 3
    assert {**summary["stop"], "best": 0} == {
        **{"round": 3, "reason": "patience", "protocol": "personal", "scored_on": "validation", "best": 0},
        "best_round": 1,
    }
    (stop,) = events(tmp_path / "whole", "stop")
    assert (stop["round"], stop["reason"], stop["protocol"], stop["best"]) == (
        *(3, "patience", "personal"),
        summary["stop"]["best"],
    )
    assert stop["best"] == events(tmp_path / "whole", "evaluation")[0]["accuracy"]["personal"]
    for round in (1, 2, 3):  # the last one is committed, but the summary is not written
        folder = tmp_path / str(round)
        with pytest.raises(Interrupted):
            run(experiment, out=folder, callback=After(round))
        again = run(experiment, out=folder, resume=True).summary
        assert (again["state_digest"], again["stop"]) == (summary["state_digest"], summary["stop"])
        assert len(events(folder, "stop")) == 1
    shorter = tiny_experiment(method="fedavg", rounds=3, validation=0.3, evaluate=OFTEN)
    assert run(shorter, out=tmp_path / "shorter").summary["state_digest"] == summary["state_digest"]
    assert verify_run(tmp_path / "whole", None, lambda folder, record: None).round == 3


def test_a_run_that_never_reaches_its_target_says_so(tmp_path: Path) -> None:
    experiment = tiny_experiment(method="local", rounds=2, stop={"target": 1.0}, evaluate=OFTEN)
    summary = run(experiment, out=tmp_path / "run").summary
    assert (summary["rounds_done"], summary["stop"]["reason"]) == (2, "rounds")
    assert events(tmp_path / "run", "stop") == []
