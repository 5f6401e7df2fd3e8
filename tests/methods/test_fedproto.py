"""FedProto: nothing but prototypes crosses, and they pull."""

from typing import Any

import pytest
import torch
from torch import Tensor

from refprotofl.core.errors import InputError, RunError
from refprotofl.methods import erpa
from refprotofl.methods.common.prototypes import read_anchors, read_means


def run_of(simulated: Any, **table: Any) -> Any:
    return simulated({"method": "fedproto", "fedproto": table})


def client_digests(done: Any) -> list[dict[str, str]]:
    return [event["clients"] for event in done.events("round")]


def uploads(done: Any, number: int, counted: bool = False) -> list[Any]:
    sent = [one.message for one in done.tap.select("up", "train") if one.round == number]
    return [read_means(message, 10, 8, counted=counted) for message in sent]


def anchors(done: Any, number: int) -> tuple[Tensor, Tensor]:
    (message, *rest) = (one.message for one in done.tap.select("down", "train") if one.round == number)
    assert len(rest) == 3
    return read_anchors(message, 10, 8)


def test_of_weight_zero_it_is_local_training_to_the_last_bit(simulated: Any) -> None:
    alone = simulated({"method": "local"})
    assert client_digests(run_of(simulated, weight=0.0)) == client_digests(alone)
    pulled = run_of(simulated)
    assert client_digests(pulled)[0] == client_digests(alone)[0]  # no prototypes in the first round
    assert client_digests(pulled)[1] != client_digests(alone)[1]


def test_a_client_sends_its_classes_and_gets_all_known_ones(simulated: Any) -> None:
    done = run_of(simulated)
    assert {one.phase for one in done.tap.crossings} == {"train", "evaluate"}
    up, down = done.communication["uplink"], done.communication["downlink"]
    held = [int(one.counts.sum()) for number in (1, 2, 3) for one in uploads(done, number)]
    assert up["parameters"] == down["parameters"] == 0
    assert up["prototype_values"] == 8 * sum(held)
    assert up["other_values"] == sum(number for number in held if number < 10)  # class ids
    assert down["prototype_values"] == 8 * 4 * sum(int(anchors(done, number)[1].sum()) for number in (2, 3))
    assert not anchors(done, 1)[1].any()


@pytest.mark.parametrize("weighting", ["uniform", "count"])
def test_the_next_anchors_are_the_means_over_the_holders(simulated: Any, weighting: str) -> None:
    done = run_of(simulated, weighting=weighting)
    sent, (found, defined) = uploads(done, 1, counted=weighting == "count"), anchors(done, 2)
    for number in defined.nonzero().flatten().tolist():
        holders = [one for one in sent if one.counts[number] > 0]
        weights = torch.tensor([float(one.counts[number]) for one in holders])
        expected = (weights.unsqueeze(1) * torch.stack([one.means[number] for one in holders])).sum(dim=0)
        assert found[number].allclose(expected / weights.sum(), atol=1e-5)
    assert max(int(one.counts.max()) for one in sent) > 1 or weighting == "uniform"


def test_both_rules_are_scored_and_by_head_before_and_after_are_the_same(simulated: Any) -> None:
    accuracy = run_of(simulated).finished.summary["accuracy"]
    assert accuracy["personal"] == accuracy["personal_before"]
    assert accuracy["personal_prototype"] is not None
    assert accuracy["own_prototype"] is not None
    assert accuracy["global"] is None


def test_squared_pulls_eight_times_as_hard_as_mse_on_eight_dimensions(simulated: Any) -> None:
    squared, mse = run_of(simulated, weight=1.0, reduction="squared"), run_of(simulated, weight=8.0)
    assert client_digests(squared) == client_digests(mse)
    assert client_digests(squared) != client_digests(run_of(simulated))


def test_running_prototypes_are_others_but_train_alike_until_they_are_used(simulated: Any) -> None:
    running, after = run_of(simulated, collect="running"), run_of(simulated)
    assert client_digests(running)[0] == client_digests(after)[0]
    assert not uploads(running, 1)[0].means.equal(uploads(after, 1)[0].means)
    assert uploads(running, 1)[0].counts.equal(uploads(after, 1)[0].counts)


def test_with_few_clients_a_round_classes_are_retained_or_forgotten(simulated: Any) -> None:
    few = {"method": "fedproto", "fraction": 0.25, "alpha": 0.1, "rounds": 4}
    kept, lost = simulated(few), simulated(few | {"fedproto": {"retain": False}})
    ever = torch.stack([one.counts for number in (1, 2, 3, 4) for one in uploads(kept, number)]).sum(dim=0) > 0
    last = uploads(lost, 4)[0].counts > 0
    assert kept.server_state()["defined"].equal(ever)
    assert lost.server_state()["defined"].equal(last)
    assert int(ever.sum()) > int(last.sum())


def test_a_prototype_loss_that_is_always_zero_stops_the_run(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erpa, "alignment_loss", lambda embeddings, *_: 0.0 * embeddings.sum())
    with pytest.raises(RunError, match=r"Round 2: .*client 0: .* 0.0 although anchors exist and fedproto.weight = 1.0"):
        simulate({"method": "fedproto"})


def test_an_impossible_value_is_refused_by_its_key(tiny: Any) -> None:
    with pytest.raises(InputError, match=r"fedproto\.weighting"):
        tiny({"fedproto": {"weighting": "sometimes"}})
