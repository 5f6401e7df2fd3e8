"""The supervised contrastive loss, by hand, by a slow loop, and where it has nothing to say."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from refprotofl.methods.builtin.vhl.vhl import supcon


def slow(rows, labels, temperature):
    total = 0.0
    for i, row in enumerate(rows):
        others = [k for k in range(len(rows)) if k != i]
        positives = [k for k in others if labels[k] == labels[i]]
        below = sum(math.exp(float(row @ rows[k]) / temperature) for k in others)
        info = [-math.log(math.exp(float(row @ rows[k]) / temperature) / below) for k in positives]
        total += sum(info) / max(1, len(info))
    return total / len(rows)


def test_three_rows_by_hand():
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    loss = supcon(rows, torch.tensor([0, 0, 1]), 1.0)
    # The first has similarities 0 (its positive) and 1, the second 0 and 0, the third no positive.
    assert loss.item() == pytest.approx((math.log(1 + math.e) + math.log(2) + 0) / 3, abs=1e-6)


@pytest.mark.parametrize("number", [1, 2, 5])
def test_without_positives_it_is_zero_and_its_gradient_is_finite(number):
    values = torch.randn(number, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = supcon(functional.normalize(values), torch.arange(number), 0.07)
    loss.backward()
    assert loss.item() == 0
    assert values.grad is not None
    assert torch.isfinite(values.grad).all()


def test_rows_of_nothing_but_zeros_have_a_finite_gradient_behind_a_relu():
    values = torch.full((4, 3), -1.0, requires_grad=True)
    supcon(functional.normalize(torch.relu(values)), torch.tensor([0, 0, 1, 1]), 0.07).backward()
    assert values.grad is not None
    assert torch.isfinite(values.grad).all()


@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=9),
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.07, 0.5, 1.0]),
)
def test_it_agrees_with_a_loop_over_all_pairs(labels, seed, temperature):
    generator = torch.Generator().manual_seed(seed)
    rows = functional.normalize(torch.randn(len(labels), 5, generator=generator, dtype=torch.float64))
    fast = supcon(rows, torch.tensor(labels), temperature)
    assert fast.item() == pytest.approx(slow(rows, labels, temperature), rel=1e-9, abs=1e-9)
