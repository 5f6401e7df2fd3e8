"""The real sets, where $REFPROTOFL_DATA says they are: facts that anyone can look up."""

import numpy as np
import pytest

from refprotofl.data import check, federate, load_dataset
from refprotofl.experiment import Experiment
from refprotofl.inputs.image import channel_statistics

pytestmark = pytest.mark.slow

FIRST_LABELS = {"mnist": [5, 0, 4, 1, 9], "fashion-mnist": [9, 0, 0, 3, 0], "cifar10": [6, 9, 9, 4, 1]}


@pytest.mark.parametrize("name", FIRST_LABELS)
def test_contents_are_the_published_ones(real_data, name):
    found = check(name, real_data)
    assert found.unverified == ()
    assert len(found.verified) in (4, 6)
    assert found.test_inputs == 10_000
    if name != "mnist":
        assert set(found.train_counts) == {found.train_inputs // 10}
        assert set(found.test_counts) == {1000}


@pytest.mark.parametrize("name", FIRST_LABELS)
def test_first_labels_and_statistics(real_data, name):
    data = load_dataset(name, real_data)
    assert data.train_labels[:5].tolist() == FIRST_LABELS[name]
    mean, std = channel_statistics(data.train_inputs)
    assert np.round(mean, 4).tolist() == list(data.mean)
    assert np.round(std, 4).tolist() == list(data.std)


def test_a_federation_of_fashion_mnist(real_data):
    data = federate(Experiment.parse({"dataset": "fashion-mnist"}), load_dataset("fashion-mnist", real_data))
    assert len(data.public_indices) == 500
    assert data.class_counts().sum(axis=0).tolist() == [5950] * 10
    assert data.class_counts().sum(axis=1).min() >= 64
    assert sum(len(own) for own in data.own_test_indices) == 10_000
