"""APUD against numbers worked out by hand, slow obvious code, and laws over generated cases."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from refprotofl.methods import apud
from refprotofl.methods.aggregators.mean import Mean
from refprotofl.methods.base.aggregation import aggregate_uploads, apply_update
from refprotofl.wire.tensors import same_bits

# Few distinct values: so that ties are the rule.
COARSE = st.integers(-3, 3).map(lambda number: number / 2)
FINE = st.floats(-1e6, 1e6, width=32)


@st.composite
def movements(draw: st.DrawFn) -> tuple[Tensor, Tensor, int]:
    """Local vector, reference, keep."""
    size = draw(st.integers(1, 40))
    numbers = st.lists(draw(st.sampled_from([COARSE, FINE])), min_size=size, max_size=size)
    return torch.tensor(draw(numbers)), torch.tensor(draw(numbers)), draw(st.integers(1, size))


@st.composite
def federations(draw: st.DrawFn) -> tuple[Tensor, list[tuple[Tensor, Tensor, float]]]:
    """A reference and uploads of (values, mask, weight)."""
    size = draw(st.integers(1, 12))
    numbers = st.lists(st.floats(-100, 100, width=32), min_size=size, max_size=size)
    flags = st.lists(st.booleans(), min_size=size, max_size=size)
    uploads = draw(st.lists(st.tuples(numbers, flags, st.integers(1, 5000)), max_size=5))
    reference = torch.tensor(draw(numbers))
    return reference, [(torch.tensor(values), torch.tensor(mask), float(weight)) for values, mask, weight in uploads]


# Which coordinates go


def test_the_two_clients_of_the_worked_example_choose_their_largest_movements() -> None:
    reference = torch.zeros(4)
    assert apud.select(torch.tensor([3.0, 1, 0, -2]), reference, 2).tolist() == [True, False, False, True]
    assert apud.select(torch.tensor([1.0, -4, 0.5, 0]), reference, 2).tolist() == [True, True, False, False]


def test_of_equal_movements_the_lower_index_goes_first() -> None:
    assert apud.select(torch.ones(4), torch.zeros(4), 2).tolist() == [True, True, False, False]
    assert apud.select(torch.tensor([0.0, 0, 5, 0]), torch.zeros(4), 3).tolist() == [True, True, True, False]


def test_the_sign_of_a_movement_does_not_matter() -> None:
    assert apud.select(torch.tensor([-2.0, 1.0, 2.0]), torch.zeros(3), 2).tolist() == [True, False, True]


@given(movements())
def test_exactly_keep_are_selected_and_none_left_out_moved_more(case: tuple[Tensor, Tensor, int]) -> None:
    local, reference, keep = case
    mask = apud.select(local, reference, keep)
    movement = (local - reference).abs()
    assert mask.dtype == torch.bool
    assert int(mask.sum()) == keep
    if keep < len(local):
        assert movement[mask].min() >= movement[~mask].max()


@given(movements())
def test_selection_agrees_with_sorting_by_movement_then_index(case: tuple[Tensor, Tensor, int]) -> None:
    local, reference, keep = case
    movement = (local - reference).abs().tolist()
    ranked = sorted(range(len(movement)), key=lambda index: (-movement[index], index))
    assert apud.select(local, reference, keep).nonzero().flatten().tolist() == sorted(ranked[:keep])


@pytest.mark.parametrize(
    ("keep", "size", "number"), [(0.1, 66_954, 6_695), (1.0, 7, 7), (1e-9, 5, 1), (0.5, 3, 1), (0.999, 10, 9)]
)
def test_the_number_sent_is_the_share_rounded_down_but_one_at_least(keep: float, size: int, number: int) -> None:
    assert apud.number_to_send(keep, size) == number


# The other rules of selection


@given(st.lists(st.floats(0, 1e3, width=32), min_size=2, max_size=60), st.data())
def test_inclusion_probabilities_add_up_to_keep_and_are_proportional_below_one(
    movement: list[float], data: st.DataObject
) -> None:
    array = np.array(movement)
    moving = int(np.count_nonzero(array))
    assume(moving >= 2)
    keep = data.draw(st.integers(1, moving - 1))
    probabilities = apud.inclusion_probabilities(array, keep)
    assert probabilities.sum() == pytest.approx(keep, rel=1e-9)
    assert (probabilities <= 1).all()
    assert (probabilities[array == 0] == 0).all()
    uncertain = (probabilities < 1 - 1e-9) & (array > 0)
    scales = probabilities[uncertain] / array[uncertain]
    assert np.allclose(scales, scales[:1], rtol=1e-9)  # one s for all of them
    if uncertain.any():  # which would take the others to 1 or beyond
        assert (scales[0] * array[probabilities >= 1 - 1e-9] > 1 - 1e-6).all()


def test_inclusion_probabilities_by_hand() -> None:
    # s = 2/10 would give the 7 a chance of 1.4: it is certain, and the other one is shared 1 : 2.
    assert apud.inclusion_probabilities(np.array([7.0, 1, 2, 0]), 2) == pytest.approx([1, 1 / 3, 2 / 3, 0])


def test_probabilistic_selection_meets_its_inclusion_probabilities() -> None:
    draws, keep = 4000, 5
    generator = np.random.default_rng(7)
    local = torch.tensor([0.0, 9.0, 0.1, 0.4, 1.0, 1.0, 0.2, 3.0, 0.7, 0.05, 2.0, 0.3])
    expected = apud.inclusion_probabilities(local.numpy().astype(np.float64), keep)
    seen = np.zeros(len(local))
    for _ in range(draws):
        mask = apud.select_probabilistic(-local, torch.zeros(len(local)), keep, generator)
        assert int(mask.sum()) == keep
        seen += mask.numpy()
    sigma = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(seen / draws - expected) <= 4 * sigma).all()
    assert seen[1] == draws  # certain
    assert seen[0] == 0  # never moved


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 30), st.integers(0, 2**32))
def test_with_fewer_movers_than_keep_all_of_them_go_and_lower_indices_fill_up(
    size: int, movers: int, keep: int, seed: int
) -> None:
    assume(movers <= keep <= size)
    generator = np.random.default_rng(seed)
    local = torch.zeros(size)
    moving = generator.choice(size, movers, replace=False)
    local[torch.from_numpy(moving)] = 1.5
    mask = apud.select_probabilistic(local, torch.zeros(size), keep, generator)
    rest = [index for index in range(size) if index not in moving]
    assert mask.nonzero().flatten().tolist() == sorted([*moving.tolist(), *rest[: keep - movers]])


@given(movements(), st.integers(0, 2**32))
def test_every_rule_selects_exactly_keep(case: tuple[Tensor, Tensor, int], seed: int) -> None:
    local, reference, keep = case
    probable = apud.select_probabilistic(local, reference, keep, np.random.default_rng(seed))
    random = apud.select_random(len(local), keep, np.random.default_rng(seed))
    assert int(probable.sum()) == int(random.sum()) == keep
    assert len(probable) == len(random) == len(local)


def test_random_selection_is_even_and_repeats_with_its_stream() -> None:
    draws, size, keep = 4000, 10, 3
    generator = np.random.default_rng(1)
    seen = sum(apud.select_random(size, keep, generator).numpy().astype(int) for _ in range(draws))
    sigma = np.sqrt(0.3 * 0.7 / draws)
    assert (np.abs(seen / draws - 0.3) <= 4 * sigma).all()
    one, same = (apud.select_random(50, 7, np.random.default_rng(2)) for _ in range(2))
    assert one.equal(same)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=8), st.data())
def test_a_split_by_tensor_adds_up_and_never_asks_a_tensor_for_more_than_it_has(
    sizes: list[int], data: st.DataObject
) -> None:
    keep = data.draw(st.integers(1, sum(sizes)))
    counts = apud.split_by_tensor(keep, sizes)
    assert sum(counts) == keep
    for count, size in zip(counts, sizes, strict=True):
        assert 0 <= count <= size
        assert abs(count - keep * size / sum(sizes)) < 1


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_a_split_of_any_keep_is_possible_for_tensors_of_a_few_elements(sizes: list[int]) -> None:
    for keep in range(1, sum(sizes) + 1):
        assert all(count <= size for count, size in zip(apud.split_by_tensor(keep, sizes), sizes, strict=True))
    assert apud.split_by_tensor(sum(sizes), sizes) == sizes


def test_equal_remainders_go_to_the_earlier_tensor() -> None:
    assert apud.split_by_tensor(1, [5, 5]) == [1, 0]
    assert apud.split_by_tensor(10, [65_536, 128, 1_280, 10]) == [10, 0, 0, 0]


# Aggregation


def slowly(
    reference: Tensor, uploads: Sequence[tuple[Tensor, Tensor, float]], normalise: str
) -> tuple[list[float], list[bool]]:
    """Eq. (7), a coordinate at a time in Python's floats; and which coordinates anybody sent."""
    result, sent = [], []
    for index, old in enumerate(reference.tolist()):
        senders = [(values[index].item(), weight) for values, mask, weight in uploads if mask[index]]
        total = sum(weight for _, weight in senders)
        if normalise == "participants":
            everyone = sum(weight for _, _, weight in uploads)
            new = old + sum(weight * (value - old) for value, weight in senders) / everyone if senders else old
        else:
            new = sum(weight * value for value, weight in senders) / total if senders else old
        result.append(new)
        sent.append(bool(senders))
    return result, sent


@pytest.mark.parametrize(
    ("normalise", "expected"), [("senders", [2.5, -4, 0, -2]), ("participants", [2.5, -1, 0, -1.5])]
)
def test_the_worked_example_of_two_clients(
    normalise: Literal["senders", "participants"], expected: list[float]
) -> None:
    uploads = [
        (torch.tensor([3.0, 1, 0, -2]), torch.tensor([True, False, False, True]), 30.0),
        (torch.tensor([1.0, -4, 0.5, 0]), torch.tensor([True, True, False, False]), 10.0),
    ]
    assert apud.aggregate(torch.zeros(4), uploads, normalise).tolist() == expected
    assert apud.aggregate(torch.zeros(4), iter(uploads), normalise).dtype == torch.float32


def test_a_sent_zero_counts_because_the_mask_decides() -> None:
    reference, local = torch.ones(2), torch.tensor([0.0, 1.1])
    mask = apud.select(local, reference, 1)
    assert apud.aggregate(reference, [(local, mask, 3.0)]).tolist() == [0, 1]


def test_what_stands_where_nothing_was_sent_is_never_read() -> None:
    values = torch.tensor([1.0, float("nan"), float("inf")])
    mask = torch.tensor([True, False, False])
    assert apud.aggregate(torch.tensor([0.0, 7.0, 8.0]), [(values, mask, 2.0)]).tolist() == [1, 7, 8]


@pytest.mark.parametrize("normalise", ["senders", "participants"])
@given(case=federations())
def test_aggregation_agrees_with_a_slow_loop_over_coordinates(
    normalise: Literal["senders", "participants"], case: tuple[Tensor, list[tuple[Tensor, Tensor, float]]]
) -> None:
    reference, uploads = case
    before = reference.clone()
    result = apud.aggregate(reference, iter(uploads), normalise)
    expected, sent = slowly(reference, uploads, normalise)
    assert torch.allclose(result, torch.tensor(expected), rtol=1e-6, atol=1e-5)
    unsent = ~torch.tensor(sent)
    assert same_bits(result[unsent], before[unsent])  # also of -0.0
    assert same_bits(reference, before)


@pytest.mark.parametrize("normalise", ["senders", "participants"])
@given(case=federations())
def test_touching_only_what_was_sent_gives_the_bits_of_whole_vectors_added_up(
    normalise: Literal["senders", "participants"], case: tuple[Tensor, list[tuple[Tensor, Tensor, float]]]
) -> None:
    reference, uploads = case
    before = reference.double()
    change = torch.zeros_like(before)
    senders = torch.zeros_like(before)
    for values, mask, weight in uploads:
        change += torch.where(mask, weight * (values.double() - before), 0.0)
        senders += mask.double() * weight
    total = senders if normalise == "senders" else torch.full_like(senders, sum(weight for _, _, weight in uploads))
    expected = torch.where(senders > 0, (before + change / total).float(), reference)
    assert same_bits(apud.aggregate(reference, uploads, normalise), expected)
    sent = (
        apud.upload(reference, mask.nonzero().squeeze(1), values[mask], weight) for values, mask, weight in uploads
    )  # as a server makes them of what it was sent
    assert same_bits(apply_update(reference, aggregate_uploads(Mean(normalise), len(reference), sent)), expected)


def test_a_coordinate_that_no_client_sent_keeps_even_the_sign_of_its_zero() -> None:
    reference = torch.tensor([-0.0, 1e-45, 0.1])
    nothing = (torch.ones(3), torch.zeros(3, dtype=torch.bool), 5.0)
    assert same_bits(apud.aggregate(reference, [nothing]), reference)
    assert same_bits(apud.aggregate(reference, []), reference)
