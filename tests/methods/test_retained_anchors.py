"""Anchors of classes that no client of a round serves; prototypes of few samples; a frozen backbone."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from refprotofl.core.state import tensor_of
from refprotofl.federation.models import model_of
from refprotofl.wire.tensors import same_bits

FEW = {"fraction": 0.25, "rounds": 4, "public": {"coverage": 0.0}, "alpha": 0.1}


def served(done: Any) -> list[set[int]]:
    """The classes that each round's uploads serve."""
    rounds: dict[int, set[int]] = {}
    for one in done.tap.select("up", "prototypes"):
        rounds.setdefault(one.round, set()).update(one.message.tensor("classes").tolist())
    return [rounds[number] for number in sorted(rounds)]


@pytest.mark.parametrize("retain", [True, False])
def test_a_class_that_no_client_serves_keeps_its_anchor_or_loses_it(simulated: Any, retain: bool) -> None:
    done = simulated(FEW, retain=retain)
    classes = served(done)
    assert any(not earlier <= later for earlier, later in pairwise(classes)), "no client left"
    defined = tensor_of(done.server_state(), "defined").nonzero().squeeze(1).tolist()
    assert set(defined) == (set().union(*classes) if retain else classes[-1])


def test_what_is_kept_is_the_last_anchor(simulated: Any) -> None:
    done = simulated(FEW)
    gone = sorted(set().union(*served(done)[:-1]) - served(done)[-1])
    shorter = simulated(FEW | {"rounds": 3})
    then, now = (tensor_of(run.server_state(), "anchors") for run in (shorter, done))
    assert gone
    assert same_bits(then[gone], now[gone])


def test_prototypes_of_fewer_samples_than_min_count_are_not_sent(simulated: Any) -> None:
    all_sent = simulated({"rounds": 1, "public": {"coverage": 0.0}})
    counts = [one.message.tensor("counts") for one in all_sent.tap.select("up", "prototypes")]
    least = 4
    assert any((count < least).any() for count in counts)
    done = simulated({"rounds": 1, "public": {"coverage": 0.0}}, min_count=least)
    for before, one in zip(counts, done.tap.select("up", "prototypes"), strict=True):
        assert one.message.tensor("counts").tolist() == before[before >= least].tolist()


@pytest.mark.parametrize("norm", ["none", "batch-local"])
def test_a_frozen_backbone_stays_as_it_began_while_the_adapter_learns(simulated: Any, norm: str) -> None:
    done = simulated({"rounds": 2, "model": {"norm": norm}}, backbone="frozen")
    initial = model_of(done.resolved, 0).read_private(("feature", "head"))
    for client in range(4):
        state = done.client_state(client)
        assert all(same_bits(tensor_of(state, name), value) for name, value in initial.items())
    assert not torch.equal(done.adapter(), model_of(done.resolved, 0).read(("feature", "head")))
    assert (
        done.finished.summary["state_digest"]
        != simulated({"rounds": 2, "model": {"norm": norm}}).finished.summary["state_digest"]
    )
