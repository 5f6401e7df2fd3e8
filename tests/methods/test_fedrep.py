"""FedRep: head and body in turn."""

import numpy as np
import pytest
import torch

from refprotofl.core.errors import GuardError, RunError
from refprotofl.experiment.sections import Train
from refprotofl.methods.base import client, optimisers
from refprotofl.methods.base.samples import Samples
from refprotofl.methods.base.training import train
from refprotofl.models import BODY, HEAD, SplitModel
from refprotofl.models.inputs.image import pixels


@pytest.fixture
def model():
    torch.manual_seed(0)
    backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 5), torch.nn.ReLU())
    return SplitModel(backbone, 5, 3, 2, pixels([0.5], [0.5]))


@pytest.fixture
def samples():
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (10, 1, 2, 2), generator=generator, dtype=torch.uint8)
    return Samples(images, torch.arange(10) % 2, torch.arange(10))


@pytest.mark.parametrize(("parts", "others"), [(HEAD, BODY), (BODY, HEAD)])
def test_a_phase_moves_its_part_and_nothing_else(model, samples, parts, others):
    before = model.read(parts), model.read(others)
    train(model, samples, Train(batch_size=5), np.random.default_rng(0), parts=parts)
    assert not torch.equal(model.read(parts), before[0])
    assert torch.equal(model.read(others), before[1])
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_head_phase_is_plain_sgd_on_fixed_embeddings(model, samples):
    """Two steps of batch 5 by hand: v <- 0.9 v + g, w <- w - lr v."""
    order = np.random.default_rng(3).permutation(10)
    embeddings = model.embed(model.prepare(samples.inputs)).detach()
    weight, bias = model.head.weight.detach().clone(), model.head.bias.detach().clone()
    velocity = [torch.zeros_like(weight), torch.zeros_like(bias)]
    for rows in np.split(order, 2):
        errors = torch.softmax(embeddings[rows] @ weight.T + bias, dim=1)
        errors[torch.arange(5), samples.labels[rows]] -= 1
        for index, gradient in enumerate([errors.T @ embeddings[rows] / 5, errors.mean(dim=0)]):
            velocity[index] = 0.9 * velocity[index] + gradient
        weight, bias = weight - 0.1 * velocity[0], bias - 0.1 * velocity[1]
    table = Train(batch_size=5, lr=0.1, weight_decay=0.0)
    train(model, samples, table, np.random.default_rng(3), parts=HEAD)
    assert torch.allclose(model.head.weight, weight, atol=1e-6)
    assert torch.allclose(model.head.bias, bias, atol=1e-6)


def test_a_part_that_does_not_move_stops_the_run(model, samples):
    for parameter in model.head.parameters():
        parameter.requires_grad = False
    with pytest.raises((GuardError, RuntimeError)):
        train(model, samples, Train(), np.random.default_rng(0), parts=HEAD)


def phases_of(simulate, monkeypatch, over):
    phases = []

    def spy(model, samples, settings, order, *, parts, **rest):
        phases.append((parts, settings.local_epochs, settings.lr))
        return train(model, samples, settings, order, parts=parts, **rest)

    monkeypatch.setattr(client, "train", spy)
    simulate({"method": "fedrep", "rounds": 1, "clients": 1, **over})
    return phases


@pytest.mark.parametrize(
    ("over", "head", "body"),
    [
        ({}, 1, 1),
        ({"train": {"batch-size": 16, "local-epochs": 3}}, 1, 3),
        ({"train": {"batch-size": 16, "local-epochs": 3}, "fedrep": {"head-epochs": 2, "body-epochs": 1}}, 2, 1),
    ],
)
def test_head_first_then_body_each_for_its_epochs(simulate, monkeypatch, over, head, body):
    assert phases_of(simulate, monkeypatch, over) == [(HEAD, head, 0.01), (BODY, body, 0.01)]


def test_what_crosses_is_what_crosses_in_fedper(simulated):
    fedrep_run, fedper_run = simulated({"method": "fedrep"}), simulated({"method": "fedper"})
    assert fedrep_run.communication["uplink"]["parameters"] == fedper_run.communication["uplink"]["parameters"]
    assert not torch.equal(fedrep_run.server_state()["shared"], fedper_run.server_state()["shared"])


def test_a_head_that_stays_stops_the_run(simulate, monkeypatch):
    """A library's FedRep never trained its head with one local epoch; here that would be noticed."""
    monkeypatch.setattr(optimisers.FreshSgd, "step", lambda self, loss, grad_hook=None: None)
    with pytest.raises(RunError, match="training did not change the head"):
        simulate({"method": "fedrep"})
