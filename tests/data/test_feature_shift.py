"""Feature shift: the variance of each client's noise, and the samples that get none."""

import numpy as np
import pytest

from refprotofl.data import Dataset, federate
from refprotofl.data.feature_shift import noise_deviations
from refprotofl.experiment import Experiment


def grey() -> Dataset:
    """Return uniform mid-grey images of two classes, so that all spread in them is the noise."""
    images, labels = np.full((120, 1, 8, 8), 128, np.uint8), np.arange(120) % 2
    return Dataset(images, labels, images[:41], labels[:41], ("a", "b"), (0.5,), (0.1,))


def shifted(seed: int = 0):
    keys = {"partition": "feature-shift", "shift": 0.01, "clients": 4, "min-size": 5, "public": {"per-class": 3}}
    return federate(Experiment.parse({**keys, "seed": seed}), grey())


def test_the_variance_grows_with_the_client() -> None:
    assert noise_deviations(4, 0.04) == pytest.approx((0.1, 0.02**0.5, 0.03**0.5, 0.2))
    data = shifted()
    assert data.partition_notes.shift == pytest.approx(noise_deviations(4, 0.01))
    for rows, deviation in zip(data.client_indices, data.partition_notes.shift, strict=True):
        spread = data.dataset.train_inputs[rows].std() / 255
        assert spread == pytest.approx(deviation, rel=0.1)


def test_own_tests_are_shifted_and_the_public_set_is_not() -> None:
    data = shifted()
    assert (data.public_inputs == 128).all()
    for rows, deviation in zip(data.own_test_indices, data.partition_notes.shift, strict=True):
        assert data.dataset.test_inputs[rows].std() / 255 == pytest.approx(deviation, rel=0.15)
    assert (grey().train_inputs == 128).all()


def test_the_seed_decides() -> None:
    one, again, other = shifted(), shifted(), shifted(1)
    assert np.array_equal(one.dataset.train_inputs, again.dataset.train_inputs)
    assert not np.array_equal(one.dataset.train_inputs, other.dataset.train_inputs)
