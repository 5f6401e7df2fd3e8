"""The split of sources that have none: a fifth of each client, the latest ones, or whole groups."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refprotofl.core.errors import DataError
from refprotofl.core.streams import stream
from refprotofl.data.unsplit import Unsplit, held_out_rows, split_arrays


def held(labels, clients, groups=None, order=None, share=0.2, seed=0):
    draw = stream(seed, "test")
    parts = [None if one is None else np.asarray(one) for one in (groups, order)]
    return held_out_rows(np.asarray(labels), np.asarray(clients), parts[0], parts[1], share, draw, "here")


def test_a_fifth_of_each_class_of_each_client() -> None:
    clients, labels = np.repeat([0, 1], [20, 10]), np.tile([0, 1], 15)
    test = held(labels, clients)
    assert np.bincount(clients[test] * 2 + labels[test]).tolist() == [2, 2, 1, 1]
    assert not np.array_equal(test, held(labels, clients, seed=1))


def test_by_order_the_latest_of_each_client() -> None:
    clients, order = np.repeat([0, 1, 2], [5, 10, 1]), np.r_[5:0:-1, 0:10, 7.0]
    test = held(np.zeros(16, int), clients, order=order)
    assert np.flatnonzero(test).tolist() == [
        0,
        13,
        14,
    ]  # time 5 of client 0; 8 and 9 of client 1; client 2 keeps its one


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(1, 9)), min_size=1, max_size=30), st.booleans()
)
def test_a_group_is_never_on_both_sides(recordings, timed):
    """Each recording is one of a client, with a class and a number of windows."""
    sizes = [size for _, _, size in recordings]
    groups = np.repeat(np.arange(len(recordings)), sizes)
    clients, labels = (np.repeat([one[part] for one in recordings], sizes) for part in (0, 1))
    test = held(labels, clients, groups, np.arange(len(groups)) if timed else None)
    assert all(len(set(test[groups == number])) == 1 for number in range(len(recordings)))
    for client in set(clients):
        own = clients == client
        assert not test[own].all()
        assert test[own].any() or len(set(groups[own])) == 1
    if timed:  # what is held out of a client is later than what is not
        for client in set(clients):
            own = np.flatnonzero(clients == client)
            assert (np.diff(test[own].astype(int)) >= 0).all()


def test_a_group_of_two_clients_is_refused() -> None:
    with pytest.raises(DataError, match=r"here: the group of row 3 \(data\.group\) has samples of two clients"):
        held([0, 0, 0], [0, 0, 1], groups=[5, 5, 5])


def test_arrays_of_both_splits() -> None:
    inputs, labels = np.arange(40.0, dtype=np.float32).reshape(20, 2), np.repeat([7, 9], 10)
    clients, groups = np.array(["b", "a"] * 10), np.arange(20) // 2
    found = Unsplit(inputs.copy(), labels, clients, reusable=True)
    arrays, _ = split_arrays(found, "here", 0)
    whole = np.concatenate([arrays["x_train"], arrays["x_test"]])
    assert sorted(whole[:, 0].tolist()) == inputs[:, 0].tolist()
    for rows, owners, side in (
        (arrays["x_train"], arrays["client"], "train"),
        (arrays["x_test"], arrays["client_test"], "test"),
    ):
        numbers = (rows[:, 0] / 2).astype(int)
        assert owners.tolist() == clients[numbers].tolist()
        assert arrays[f"y_{side}"].tolist() == labels[numbers].tolist()
    kept, _ = split_arrays(Unsplit(inputs, labels, clients), "here", 0)
    assert np.array_equal(kept["x_train"], arrays["x_train"])
    assert inputs[0].tolist() == [0, 1]  # memory that is not ours is left alone
    with pytest.raises(DataError, match="two clients"):
        split_arrays(Unsplit(inputs, labels, clients, groups=groups), "here", 0)


def test_a_given_split_needs_both_sides() -> None:
    inputs = np.zeros((4, 1), np.float32)
    with pytest.raises(DataError, match=r"there are no test rows \(data\.split\)"):
        split_arrays(Unsplit(inputs, np.arange(4) % 2, test=np.zeros(4, bool)), "here", 0)


def test_test_samples_of_classes_that_are_only_late_are_left_out() -> None:
    labels = np.array([0, 1] * 9 + [2, 0])
    arrays, notes = split_arrays(Unsplit(np.arange(20.0)[:, None], labels, order=np.arange(20.0)), "here", 0)
    assert notes == ("here: 1 test samples left out, as no training sample has their class (2).",)
    assert arrays["y_test"].tolist() == [0, 1, 0]
    assert arrays["x_test"][:, 0].tolist() == [16, 17, 19]


def test_too_little_to_hold_out(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too few samples to hold out a fifth"):
        split_arrays(Unsplit(np.zeros((2, 1)), np.arange(2)), "here", 0)


def test_classes_of_few_large_groups_are_held_out_too() -> None:
    """Two groups of ten samples for each class: a tenth of a class alone is nearer to nothing than to a group."""
    labels = np.tile(np.repeat(np.arange(5), 20), 12)  # of 12 clients
    clients, groups = np.repeat(np.arange(12), 100), np.repeat(np.arange(120), 10)
    rows = held(labels, clients, groups=groups, share=0.1)
    by_client = [int(rows[clients == client].sum()) for client in range(12)]
    assert by_client == [10] * 12
    assert all(rows[labels == label].any() for label in range(5))
