import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refprotofl.evaluation.metrics import confusion, most_confused, per_class_accuracy

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30)


def test_by_hand():
    counts = confusion([0, 1, 1, 2, 0, 1], [0, 0, 1, 1, 0, 0], 4)
    assert counts.tolist() == [[2, 2, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert per_class_accuracy(counts) == [0.5, 0.5, None, None]
    assert [most_confused(counts, label) for label in range(4)] == [1, 2, None, None]


@given(PAIRS, PAIRS)
def test_counts_add_and_their_diagonal_is_what_was_right(first, second):
    def counted(pairs):
        return confusion([predicted for predicted, _ in pairs], [label for _, label in pairs], 4)

    together = counted(first + second)
    assert np.array_equal(together, counted(first) + counted(second))
    assert together.trace() == sum(predicted == label for predicted, label in first + second)


def test_tensors_will_do_too():
    assert confusion(torch.tensor([1, 0]), torch.tensor([1, 1]), 2).tolist() == [[0, 0], [1, 1]]


@pytest.mark.parametrize(("predicted", "labels"), [([0, 1], [0]), ([2], [0]), ([0], [-1]), ([[0]], [[0]])])
def test_what_does_not_fit_is_refused(predicted, labels):
    with pytest.raises(ValueError):
        confusion(predicted, labels, 2)
