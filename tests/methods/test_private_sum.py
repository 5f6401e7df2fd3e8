"""The noised sum of a trusted server, by hand."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from refprotofl.experiment import Experiment
from refprotofl.methods.base.aggregation import Upload
from refprotofl.privacy.client_level import NoisedSum, noised_prototypes


def aggregator(clip: float, noise: float, expected: int) -> NoisedSum:
    return NoisedSum(clip, noise, expected, lambda: np.random.default_rng(0))


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_changes_are_shortened_and_divided_by_the_expected_number_whatever_their_weight() -> None:
    uploads = [Upload(vector(3.0, 4.0), 1000.0), Upload(vector(0.1, 0.0), 1.0)]
    # (3, 4) is shortened to (0.6, 0.8); two came of four that were expected.
    torch.testing.assert_close(aggregator(1.0, 0.0, 4).aggregate(2, uploads), vector(0.175, 0.2))


def test_where_no_client_was_to_send_nothing_moves_and_there_is_no_noise() -> None:
    places = torch.tensor([0, 2])
    move = aggregator(1.0, 5.0, 1).aggregate(4, [Upload(vector(0.5, 0.5), 1.0, places)])
    assert move[1] == move[3] == 0
    assert bool((move[places] != 0.5).all())


@pytest.mark.parametrize("expected", [1, 10])
def test_noise_has_the_scale_that_it_says(expected: int) -> None:
    size = 100_000
    move = aggregator(0.5, 3.0, expected).aggregate(size, [Upload(torch.zeros(size, dtype=torch.float64), 1.0)])
    assert float(move.std()) == pytest.approx(1.5 / expected, rel=0.02)


def test_a_client_moves_prototypes_by_at_most_their_bound() -> None:
    table: dict[str, Any] = {"unit": "client", "noise": 0.0, "prototype_clip": 2.0}
    experiment = Experiment(method="fedavg", clients=2, privacy=table)
    far = torch.full((2, 3, 4), 100.0)
    near = torch.full((2, 3, 4), 100.0)
    near[1] = 0.0
    moved = noised_prototypes(experiment, 1, far) - noised_prototypes(experiment, 1, near)
    assert float(moved.norm()) == pytest.approx(2.0 * math.sqrt(3) / 2, rel=1e-6)  # over two expected clients
    assert torch.allclose(noised_prototypes(experiment, 1, far).norm(dim=1), torch.full((3,), 2.0))
