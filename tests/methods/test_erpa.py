"""ERPA by hand: prototypes, anchors, and a loss that undefined anchors never reach."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from refprotofl.methods import erpa

NAN = float("nan")


def test_class_prototypes_are_means_and_an_absent_class_is_a_zero_row() -> None:
    embeddings = torch.tensor([[1.0, 2], [3, 6], [10, 20]])
    means, counts = erpa.class_prototypes(embeddings, torch.tensor([2, 2, 0]), 4)
    assert means.tolist() == [[10, 20], [0, 0], [2, 4], [0, 0]]
    assert counts.tolist() == [1, 0, 2, 0]
    assert means.dtype == torch.float32
    assert counts.dtype == torch.int64


def test_class_prototypes_of_no_samples_at_all() -> None:
    means, counts = erpa.class_prototypes(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), 2)
    assert means.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert counts.tolist() == [0, 0]


def test_a_large_class_is_summed_without_losing_its_small_part() -> None:
    # In float32, 2**25 + 1 is 2**25 again.
    embeddings = torch.cat([torch.full((1, 1), 2.0**25), torch.ones(2**10, 1)])
    means, _ = erpa.class_prototypes(embeddings, torch.zeros(len(embeddings), dtype=torch.int64), 1)
    assert means.item() == pytest.approx((2**25 + 2**10) / (2**10 + 1), rel=1e-7)


def test_external_prototypes_are_a_uniform_mean_and_global_ones_are_weighted_by_counts() -> None:
    prototypes = torch.tensor([[[0.0]], [[4.0]]])  # (clients, classes, m)
    assert erpa.external_prototypes(prototypes).tolist() == [[2]]
    means, defined = erpa.global_prototypes(prototypes, torch.tensor([[1], [3]]))
    assert means.tolist() == [[3]]
    assert defined.tolist() == [True]


def test_a_class_that_no_client_holds_is_undefined_and_rows_without_samples_are_not_read() -> None:
    prototypes = torch.tensor([[[1.0, 1], [NAN, NAN]], [[NAN, NAN], [NAN, NAN]]])
    means, defined = erpa.global_prototypes(prototypes, torch.tensor([[2, 0], [0, 0]]))
    assert defined.tolist() == [True, False]
    assert means[0].tolist() == [1, 1]
    assert not means.isnan().any()


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(-9, 9, width=32)), min_size=1, max_size=6))
def test_a_global_prototype_is_the_mean_of_all_samples_pooled(clients: list[tuple[int, float]]) -> None:
    counts = torch.tensor([[count] for count, _ in clients])
    prototypes = torch.tensor([[[value]] for _, value in clients])
    means, defined = erpa.global_prototypes(prototypes, counts)
    pooled = [value for count, value in clients for _ in range(count)]
    assert defined.item() == bool(pooled)
    if pooled:
        assert means.item() == pytest.approx(sum(pooled) / len(pooled), rel=1e-5, abs=1e-5)


def test_the_alignment_loss_by_hand() -> None:
    embeddings = torch.tensor([[1.0, 2], [0, 0], [5, 5]])
    anchors = torch.tensor([[0.0, 0], [3, 4], [NAN, NAN]])
    defined = torch.tensor([True, True, False])
    # |(1,2)|^2 = 5; |(0,0)-(3,4)|^2 = 25; the last has no anchor: 0. The mean is over all three.
    loss = erpa.alignment_loss(embeddings, torch.tensor([0, 1, 2]), anchors, defined)
    assert loss.item() == pytest.approx(30 / 3)


def test_a_batch_without_any_anchor_costs_nothing_and_pulls_nowhere() -> None:
    embeddings = torch.ones(2, 3, requires_grad=True)
    loss = erpa.alignment_loss(embeddings, torch.tensor([0, 1]), torch.full((2, 3), NAN), torch.tensor([False, False]))
    loss.backward()
    assert loss.item() == 0
    assert embeddings.grad is not None
    assert embeddings.grad.tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("poison", [NAN, float("inf"), -float("inf")])
def test_undefined_anchors_reach_neither_loss_nor_gradient(poison: float) -> None:
    embeddings = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels, defined = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([True, False, True])
    clean = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    results = []
    for anchors in (clean, torch.where(defined.unsqueeze(1), clean, poison)):
        loss = erpa.alignment_loss(embeddings, labels, anchors, defined)
        (gradient,) = torch.autograd.grad(loss, embeddings)
        results.append((loss, gradient))
    (loss, gradient), (poisoned_loss, poisoned_gradient) = results
    assert loss.equal(poisoned_loss)
    assert loss > 0
    assert gradient.equal(poisoned_gradient)
    assert gradient[~defined[labels]].eq(0).all()
    assert gradient[defined[labels]].ne(0).any()


def test_anchors_are_chosen_between_external_and_global_without_mixing_in_nan() -> None:
    """Eq. (16) taken literally is 0 * undefined: the choice must not be a sum."""
    anchors, defined = erpa.global_prototypes(torch.full((1, 2, 2), NAN), torch.tensor([[0, 0]]))
    anchors[[0]] = erpa.external_prototypes(torch.ones(3, 1, 2))
    defined[[0]] = True
    loss = erpa.alignment_loss(torch.zeros(2, 2), torch.tensor([0, 1]), anchors, defined)
    assert loss.item() == pytest.approx(2 / 2)


def test_the_gradient_of_the_alignment_loss_agrees_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(3)
    embeddings = torch.randn(5, 3, generator=generator, dtype=torch.float64).requires_grad_()
    anchors = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    labels, defined = torch.tensor([0, 1, 2, 3, 1]), torch.tensor([True, True, False, True])

    def loss(at: Tensor) -> Tensor:
        return erpa.alignment_loss(at, labels, anchors, defined)

    assert torch.autograd.gradcheck(loss, embeddings)
    (gradient,) = torch.autograd.grad(loss(embeddings), embeddings)
    step = 1e-6
    for row in range(5):
        for column in range(3):
            shift = torch.zeros_like(embeddings)
            shift[row, column] = step
            slope = (loss(embeddings + shift) - loss(embeddings - shift)) / (2 * step)
            assert gradient[row, column].item() == pytest.approx(slope.item(), abs=1e-6)
