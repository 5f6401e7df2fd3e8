"""What is scored after each round: protocols, part of the test set, and no forward pass twice."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from tests.tiny import TINY

from refprotofl.core import InputError
from refprotofl.evaluation import PROTOCOLS, backbone_features, plan_of, scoring
from refprotofl.experiment import Experiment
from refprotofl.experiment.sections import ScoredProtocol
from refprotofl.federation import run
from refprotofl.records import read_events
from refprotofl.studies.results import result_of

ALL = frozenset(PROTOCOLS)


def experiment(**values: Any) -> Experiment:
    return Experiment.parse({"rounds": 4, **values})


def test_the_keys_name_every_protocol() -> None:
    assert get_args(ScoredProtocol) == tuple(PROTOCOLS)


def test_the_last_round_is_whole_and_the_others_are_cheap() -> None:
    asked = experiment()
    assert [plan_of(asked, round).samples for round in (1, 3, 4)] == [1_000, 1_000, 0]
    assert plan_of(asked, 3).protocols == ALL - {"personal_before"}
    assert plan_of(asked, 4).protocols == ALL


def test_named_protocols_are_scored_every_time_and_their_order_does_not_matter() -> None:
    one, other = (
        experiment(evaluate={"protocols": names}) for names in (["personal_before", "own"], "own,personal_before")
    )
    assert plan_of(one, 1).protocols == plan_of(one, 4).protocols == {"personal_before", "own"}
    assert one.hash == other.hash != experiment().hash


@pytest.mark.parametrize("deciding", [{"validation": 0.1}, {"stop": {"patience": 2}}])
def test_scores_that_decide_something_are_whole(deciding: dict[str, Any]) -> None:
    asked = experiment(**deciding)
    assert plan_of(asked, 1).samples == 0
    assert ("personal_before" in plan_of(asked, 1).protocols) == ("stop" in deciding)  # any round may be the last


def test_defaults_do_not_enter_the_hash() -> None:
    assert experiment(evaluate={"protocols": [], "subset": 1_000}).hash == experiment().hash
    assert experiment(evaluate={"subset": 0}).hash != experiment().hash


def test_a_run_stops_by_a_protocol_that_is_scored() -> None:
    with pytest.raises(InputError, match=r"stop\.protocol = .own., which is not in evaluate\.protocols = personal"):
        experiment(stop={"patience": 2, "protocol": "own"}, evaluate={"protocols": ["personal"]})


def test_the_subset_is_balanced_and_the_same_after_every_round() -> None:
    labels = np.repeat(np.arange(4), (400, 300, 200, 100))
    asked = experiment(evaluate={"subset": 200})
    first, third = (plan_of(asked, round).rows(labels, 4) for round in (1, 3))
    assert first is not None
    assert third is not None
    assert first.tolist() == third.tolist()
    assert np.bincount(labels[first]).tolist() == [50, 50, 50, 50]
    assert plan_of(asked, 4).rows(labels, 4) is None
    assert plan_of(asked, 1).rows(labels[:200], 4) is None  # there are no more


def test_a_clients_own_samples_are_scored_where_they_are_in_the_subset() -> None:
    labels = torch.arange(40) % 2
    inputs = torch.arange(40).view(40, 1, 1, 1).to(torch.uint8)
    plan = plan_of(experiment(evaluate={"subset": 10}), 1)
    part = scoring.TestSet(inputs, labels, torch.arange(0, 20)).planned(plan, 2)
    rows = part.inputs.flatten().tolist()
    assert len(rows) == 10
    assert part.labels.tolist() == [row % 2 for row in rows]
    assert [rows[position] for position in part.own.tolist()] == [row for row in rows if row < 20]


def test_a_nodes_own_samples_are_drawn_apart_from_the_common_ones() -> None:
    labels = torch.arange(60) % 2
    inputs = torch.arange(60).view(60, 1, 1, 1).to(torch.uint8)
    plan = plan_of(experiment(evaluate={"subset": 10}), 1)
    part = scoring.TestSet(inputs, labels, own=torch.arange(40, 60), shared=torch.arange(40)).planned(plan, 2)
    rows = part.inputs.flatten().tolist()
    assert part.shared is not None
    assert len(part.shared) == len(part.own) == 10
    assert all(rows[position] < 40 for position in part.shared.tolist())
    assert all(rows[position] >= 40 for position in part.own.tolist())


def finish(folder: Path, **values: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    asked = Experiment.parse({**TINY, "rounds": 2, "method": "fedavg", "share": "full", **values})
    summary = dict(run(asked, out=folder).summary)
    return summary, [event for event in read_events(folder) if event["event"] == "evaluation"]


def test_what_is_scored_before_changes_nothing_in_the_end(tmp_path: Path) -> None:
    every = {"every": 1}
    cheap, (first, last) = finish(tmp_path / "cheap", evaluate={**every, "subset": 50})
    whole, (whole_first, whole_last) = finish(tmp_path / "whole", evaluate={**every, "subset": 0})
    assert (first["subset"], "subset" in last, "subset" in whole_first) == (50, False, False)
    assert np.sum(first["confusion"]) == 50 * len(first["clients"])
    assert first["accuracy"]["personal_before"] is None
    assert last["accuracy"]["personal_before"] is not None
    assert {**last, "chain": ""} == {**whole_last, "chain": ""}
    for name in ("accuracy", "metrics", "accuracy_per_client", "state_digest", "trained_clients"):
        assert cheap[name] == whole[name]
    curve = result_of(tmp_path / "cheap", Experiment.parse(TINY))["curve"]
    assert [point.get("subset") for point in curve] == [50, None]


def test_without_a_protocol_of_clients_none_is_asked(tmp_path: Path) -> None:
    summary, (evaluation,) = finish(tmp_path, evaluate={"protocols": ["global"], "every": 2})
    assert {name for name, value in summary["accuracy"].items() if value is not None} == {"global"}
    assert summary["communication"]["evaluation"] == {"payload_bytes": 0, "messages": 0}
    assert evaluation["clients"] == []
    assert evaluation["loss"] is None


def test_the_server_scores_the_common_model_by_the_clients_forward_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []

    def counted(model: Any, inputs: torch.Tensor) -> torch.Tensor:
        passes.append(len(inputs))
        return backbone_features(model, inputs)

    monkeypatch.setattr(scoring, "backbone_features", counted)
    finish(tmp_path, evaluate={"protocols": ["personal", "own", "global"], "every": 2})
    assert len(passes) == 1
