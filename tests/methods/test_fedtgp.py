"""FedTGP: prototypes that the server trains apart, by a margin as wide as the classes lie."""

import math
from typing import Any

import pytest
import torch

from refprotofl.core.errors import GuardError
from refprotofl.core.streams import stream
from refprotofl.methods.base.training import plain_sgd
from refprotofl.methods.common import prototype_learning as learning
from refprotofl.methods.common.prototypes import read_anchors


def test_the_gap_of_a_class_is_the_way_to_the_nearest_other_mean() -> None:
    prototypes = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [3.0, 0.0], [7.0, 0.0]])  # means 0, 3 and 7
    found = learning.gaps(prototypes, torch.tensor([0, 0, 1, 3]), 4)
    assert found.tolist() == [3.0, 3.0, 3.0, 4.0]  # class 2 has none: the least gap
    assert learning.gaps(prototypes[:1], torch.tensor([0]), 2).tolist() == [math.inf, math.inf]


def test_the_margin_makes_the_own_prototype_look_farther() -> None:
    anchors = torch.tensor([[0.0], [2.0], [0.0]])
    seen, margins = torch.tensor([True, True, False]), torch.tensor([1.0, 5.0, 5.0])
    loss = learning.margin_loss(torch.tensor([[0.0]]), torch.tensor([0]), anchors, seen, margins)
    assert loss.item() == pytest.approx(-math.log(math.exp(-1) / (math.exp(-1) + math.exp(-2))))  # the third is unseen


def test_a_prototype_on_its_anchor_has_a_finite_gradient() -> None:
    anchors = torch.tensor([[0.0, 0.0], [2.0, 0.0]], requires_grad=True)
    learning.margin_loss(
        torch.zeros(1, 2), torch.tensor([0]), anchors, torch.tensor([True, True]), torch.ones(2)
    ).backward()
    assert torch.isfinite(anchors.grad).all()  # type: ignore[arg-type]


def test_training_lowers_the_loss_and_follows_from_seed_and_round() -> None:
    prototypes, labels = torch.eye(4).repeat(3, 1) * 3, torch.arange(4).repeat(3)
    seen, margins = torch.ones(4, dtype=torch.bool), torch.full((4,), 2.0)
    start = learning.initial(0, 4, 4)
    before = learning.generate(learning.split(start, 4, 4))

    def go(round: int) -> tuple[torch.Tensor, torch.Tensor]:
        order = stream(0, "server-batches", round=round)
        return learning.retrained(start, prototypes, labels, seen, margins, order, plain_sgd(0.05, 50, 4))

    (generator, after), again = go(1), go(1)
    assert generator.equal(again[0])
    assert after.equal(again[1])
    assert not generator.equal(go(2)[0])
    assert after.equal(learning.generate(learning.split(generator, 4, 4)))
    losses = [learning.margin_loss(prototypes, labels, one, seen, margins).item() for one in (before, after)]
    assert losses[1] < losses[0] / 2


def test_it_costs_what_fedproto_costs_but_broadcasts_other_prototypes(simulated: Any) -> None:
    done, plain = simulated({"method": "fedtgp"}), simulated({"method": "fedproto"})
    assert done.communication["uplink"] == plain.communication["uplink"]
    assert done.communication["downlink"] == plain.communication["downlink"]
    first = [{one.client: one.data for one in run.tap.select("up", "train") if one.round == 1} for run in (done, plain)]
    assert first[0] == first[1]  # without prototypes the clients are the same
    sent = [
        next(read_anchors(one.message, 10, 8) for one in run.tap.select("down", "train") if one.round == 2)
        for run in (done, plain)
    ]
    assert sent[0][1].equal(sent[1][1])  # only classes that a client has held
    assert not sent[0][0].allclose(sent[1][0], atol=0.01)
    assert done.finished.summary["accuracy"]["personal_prototype"] is not None


def test_global_prototypes_that_never_learn_stop_the_run(simulate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "minimise", lambda *_: None)
    with pytest.raises(GuardError, match="left the global prototypes exactly as it was"):
        simulate({"method": "fedtgp"})
