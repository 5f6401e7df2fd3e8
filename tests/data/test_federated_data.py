import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.core.errors import InputError
from refprotofl.core.streams import stream
from refprotofl.data import Dataset, federate
from refprotofl.data.draws import balanced_draw, covered_classes, draw_public, level
from refprotofl.data.federated import largest_remainder, split_like_training
from refprotofl.experiment import Experiment


def toy(num_classes=4, each=100, test_each=20):
    """A data set whose image i is filled with i modulo 251."""

    def split(count):
        labels = np.arange(num_classes * count) % num_classes
        brightness = (np.arange(len(labels)) % 251).astype(np.uint8)
        return brightness[:, None, None, None] * np.ones((1, 2, 2), np.uint8), labels

    names = tuple(f"class {number}" for number in range(num_classes))
    (images, labels), (test_inputs, test_labels) = split(each), split(test_each)
    return Dataset(images, labels, test_inputs, test_labels, names, (0.5,), (0.25,))


def experiment(**changes):
    values = {"clients": 5, "min-size": 2, "public": {"per-class": 10}}
    return Experiment.parse(values | {key.replace("_", "-"): value for key, value in changes.items()})


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["dirichlet", "iid", "shards"]),
    alpha=st.floats(1e-6, 1e3),
    coverage=st.floats(0, 1),
    train_limit=st.sampled_from([0, 100, 399, 1000]),
    test_limit=st.sampled_from([0, 7, 1000]),
    seed=st.integers(0, 5),
)
def test_public_and_private_cover_the_pool_once(kind, alpha, coverage, train_limit, test_limit, seed):
    dataset = toy()
    data = federate(
        experiment(
            partition=kind,
            alpha=alpha,
            train_limit=train_limit,
            seed=seed,
            public={"per-class": 10, "coverage": coverage},
            evaluate={"test-limit": test_limit},
        ),
        dataset,
    )
    used = np.concatenate([data.public_indices, *data.client_indices])
    assert len(set(used)) == len(used) == min(train_limit or 400, 400)
    assert len(data.test_indices) == min(test_limit or 80, 80)
    assert len(data.public_classes) == round(coverage * 4)
    counts = np.bincount(data.public_labels, minlength=4)
    assert counts.tolist() == [10 * (number in data.public_classes) for number in range(4)]
    assert data.class_counts().shape == (5, 4)
    assert data.class_counts().sum() == len(used) - len(data.public_indices)
    held = data.class_counts().sum(axis=0) > 0
    own = np.concatenate(data.own_test_indices)
    assert sorted(own) == [index for index in data.test_indices if held[dataset.test_labels[index]]]


def test_the_pool_is_the_same_whatever_the_method():
    one, other = (federate(experiment(method=name), toy()) for name in ("refprotofl", "fedavg"))
    assert np.array_equal(one.public_indices, other.public_indices)
    assert all(np.array_equal(a, b) for a, b in zip(one.client_indices, other.client_indices, strict=True))


def test_public_and_test_images():
    data = federate(experiment(evaluate={"test-limit": 8}), toy())
    assert (data.public_inputs[:, 0, 0, 0] == data.public_indices % 251).all()
    assert np.bincount(data.test_labels).tolist() == [2, 2, 2, 2]
    assert len(data.test_inputs) == 8


def test_the_train_limit_is_balanced_and_includes_the_public_set():
    data = federate(experiment(train_limit=100), toy())
    total = data.class_counts().sum(axis=0) + np.bincount(data.public_labels, minlength=4)
    assert total.tolist() == [25] * 4


def test_a_smaller_limit_is_part_of_a_larger():
    labels = stream(0, "labels").permutation(np.repeat(np.arange(3), [5, 50, 50]))
    draws = [set(balanced_draw(labels, 3, total, stream(0, "test"))) for total in (10, 11, 40, 105, 500)]
    assert [len(draw) for draw in draws] == [10, 11, 40, 105, 105]
    assert all(small <= large for small, large in itertools.pairwise(draws))


def test_scarce_classes_give_all_and_others_make_up():
    shares = level(np.array([2, 100, 100, 5]), 41, np.array([2, 0, 3, 1]))
    assert shares.tolist() == [2, 17, 17, 5]
    assert level(np.array([10, 10, 10]), 8, np.array([2, 0, 1])).tolist() == [3, 2, 3]


def test_defaults_of_the_public_set():
    for num_classes, per_class in ((10, 50), (11, 10)):
        labels = np.repeat(np.arange(num_classes), 60)
        names = [str(number) for number in range(num_classes)]
        assert len(draw_public(labels, names, None, range(num_classes), 0)) == num_classes * per_class


def test_coverage_is_the_start_of_one_seeded_permutation():
    permutation = stream(3, "public/classes").permutation(10)
    for coverage, count in ((0.0, 0), (0.3, 3), (0.55, 6), (1.0, 10)):
        assert covered_classes(10, coverage, None, 3) == tuple(sorted(permutation[:count]))
    assert covered_classes(10, 1.0, (7, 2), 3) == (2, 7)


def test_public_images_of_a_class_do_not_depend_on_the_coverage():
    labels = np.repeat(np.arange(5), 30)
    all_classes = draw_public(labels, "abcde", 4, range(5), 0)
    some = draw_public(labels, "abcde", 4, (1, 3), 0)
    assert set(some) == {index for index in all_classes if labels[index] in (1, 3)}


def test_no_public_set():
    nothing: tuple[dict[str, object], ...] = ({"coverage": 0.0}, {"classes": []}, {"per-class": 0})
    for public in nothing:
        data = federate(experiment(public=public), toy())
        assert data.public_classes == ()
        assert data.public_inputs.shape == (0, 1, 2, 2)
        assert data.class_counts().sum() == 400


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"public": {"per-class": 100}}, r"public\.per-class = 100: class 'class 0' has 100 .* use 99 or fewer"),
        ({"public": {}, "train_limit": 80}, r"public\.per-class = 50 \(the default\): .* has 20 .* raise train-limit"),
        ({"public": {"classes": [1, 4]}}, r"public\.classes = \[1, 4\]: there is no class 4, only 0 to 3"),
        ({"train_limit": 3}, r"train-limit = 3: with 4 classes it must be at least 4"),
        ({"clients": 1000}, "clients = 1000"),
    ],
)
def test_what_cannot_be_had_is_said_by_its_key(changes, complaint):
    with pytest.raises(InputError, match=complaint):
        federate(experiment(**changes), toy())


def test_coverage_outside_its_range():
    with pytest.raises(InputError, match=r"public\.coverage = 1.5"):
        covered_classes(10, 1.5, None, 0)


def test_largest_remainder_by_hand():
    # Quotas of 10 samples are 4.7, 1.6, 3.7: the two left over go to the .7s.
    assert largest_remainder(np.array([47, 16, 37]), 10).tolist() == [5, 1, 4]
    assert largest_remainder(np.array([1, 1, 1]), 2).tolist() == [1, 1, 0]  # ties: lower index first
    assert largest_remainder(np.array([0, 5]), 3).tolist() == [0, 3]


def test_own_tests_follow_the_training_mix():
    test_labels = np.repeat(np.arange(3), [10, 20, 30])
    counts = np.array([[30, 0, 0], [10, 50, 0]])  # no client trains class 2
    own = split_like_training(test_labels, counts, 0)
    mixes = [np.bincount(test_labels[share], minlength=3).tolist() for share in own]
    assert mixes == [[8, 0, 0], [2, 20, 0]]  # 7.5 and 2.5: the tie goes to client 0


@pytest.mark.parametrize("seed", [0, 1])
def test_a_federation_is_a_function_of_its_seed(seed):
    one, other = (federate(experiment(seed=seed), toy()) for _ in range(2))
    different = federate(experiment(seed=seed + 7), toy())
    assert np.array_equal(one.public_indices, other.public_indices)
    assert all(np.array_equal(a, b) for a, b in zip(one.own_test_indices, other.own_test_indices, strict=True))
    assert not np.array_equal(one.public_indices, different.public_indices)
