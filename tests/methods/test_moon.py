"""MOON: the contrast by hand, and FedAvg where it has no weight or no model to compare with."""

import math
from typing import Any

import pytest
import torch

from refprotofl.methods.builtin.moon.moon import contrastive_loss
from refprotofl.wire.tensors import same_bits


def test_the_contrast_by_hand() -> None:
    """Cosines 1 and 0 at temperature 0.5: -log(e^2 / (e^2 + 1)); alike on both sides: log 2."""
    current = torch.tensor([[3.0, 0.0], [1.0, 1.0]])
    received = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    previous = torch.tensor([[0.0, 5.0], [2.0, 0.0]])
    by_hand = (-math.log(math.e**2 / (math.e**2 + 1)) + math.log(2)) / 2
    assert contrastive_loss(current, received, previous, 0.5).item() == pytest.approx(by_hand, rel=1e-5)


def test_the_contrast_pulls_to_the_received_and_from_the_previous_embedding() -> None:
    current = torch.tensor([[1.0, 1.0]], requires_grad=True)
    contrastive_loss(current, torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), 0.5).backward()
    assert current.grad is not None
    down = -current.grad[0]
    assert down[0] > 0 > down[1]


@pytest.mark.parametrize("share", ["adapter", "full"])
def test_without_weight_moon_is_fedavg(simulated: Any, share: str) -> None:
    keys = {"rounds": 2, "share": share}
    plain, none = simulated({"method": "fedavg", **keys}), simulated({"method": "moon", "moon": {"weight": 0}, **keys})
    assert plain.finished.summary["state_digest"] == none.finished.summary["state_digest"]
    assert not simulated({"method": "moon", **keys}).server_state()["shared"].equal(plain.server_state()["shared"])


def test_in_a_clients_first_round_there_is_no_previous_model(simulated: Any) -> None:
    plain, first = (simulated({"method": name, "rounds": 1}).server_state()["shared"] for name in ("fedavg", "moon"))
    assert same_bits(plain, first)
