"""FedProc: FedAvg, and at first a contrast to the prototypes of the round before."""

from typing import Any

import pytest

from refprotofl.core.errors import RunError
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common.prototypes import read_anchors, read_means


@pytest.mark.parametrize("share", ["adapter", "full"])
def test_of_weight_zero_its_weights_are_those_of_fedavg_to_the_last_bit(simulated: Any, share: str) -> None:
    zero = simulated({"method": "fedproc", "share": share, "fedproc": {"weight": 0.0}})
    plain = simulated({"method": "fedavg", "share": share})
    assert zero.server_state()["shared"].equal(plain.server_state()["shared"])
    assert [one["clients"] for one in zero.events("round")] == [one["clients"] for one in plain.events("round")]
    one = simulated({"method": "fedproc", "share": share})
    assert not one.server_state()["shared"].equal(plain.server_state()["shared"])
    accuracy = one.finished.summary["accuracy"]
    assert (accuracy["global"] is None) == (share == "adapter")
    assert accuracy["personal_prototype"] is not None


def test_prototypes_go_with_the_weights_and_come_back_with_length_one(simulated: Any) -> None:
    done = simulated({"method": "fedproc", "share": "adapter"})
    held = [read_means(one.message, 10, 8) for one in done.tap.select("up", "train")]
    up, down = done.communication["uplink"], done.communication["downlink"]
    assert up["parameters"] == down["parameters"] == 12 * 1122
    assert up["prototype_values"] == 8 * sum(int(one.counts.sum()) for one in held)
    sent = [(one.round, *read_anchors(one.message, 10, 8)) for one in done.tap.select("down", "train")]
    assert not any(defined.any() for number, _, defined in sent if number == 1)
    for _, anchors, defined in sent:
        assert anchors[defined].norm(dim=1).allclose(defined[defined].float(), atol=1e-5)


def test_the_contrast_fades_to_nothing_in_the_last_round(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, seen = learning.contrastive_loss, []

    def watched(*given: Any) -> Any:
        seen.append(given)
        return honest(*given)

    monkeypatch.setattr(learning, "contrastive_loss", watched)
    simulate({"method": "fedproc", "rounds": 2})
    assert seen == []  # none in the first round, weight 0 in the last
    simulate({"method": "fedproc", "rounds": 3})
    assert seen


def test_a_contrast_that_is_always_zero_stops_the_run(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "contrastive_loss", lambda embeddings, *_: 0.0 * embeddings.sum())
    with pytest.raises(RunError, match=r"Round 2: .*client 0: train: .* fedproc.weight"):
        simulate({"method": "fedproc"})
