"""Answers of a phase compared with each other: what counts as too large, and what does not."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from refprotofl.methods.base.screening import Held, compare, longest_row, sizes
from refprotofl.methods.builtin.refprotofl.masked import Update
from refprotofl.methods.common.prototypes import ClassMeans, Prototypes
from refprotofl.wire import Message, Sparse


def outliers(by_client: dict[int, float], max_step: float = 100.0, floor: float = 0.0, **steps: int) -> set[int]:
    found = compare({"change": by_client}, max_step, lambda client: steps.get(f"c{client}", 1), floor)
    return {client for client, standing in found.items() if standing.is_outlier}


def test_an_answer_is_an_outlier_above_max_step_times_the_median() -> None:
    many = {client: 1.0 for client in range(200)}
    assert outliers({**many, 0: 100.0}) == set()
    assert outliers({**many, 0: 100.1}) == {0}


def test_an_answer_that_outweighs_all_others_together_is_one_above_30_percent_of_that() -> None:
    few = {client: 1.0 for client in range(6)}
    assert outliers({**few, 0: 30.0}) == set()
    assert outliers({**few, 0: 30.1}) == {0}
    assert outliers({client: 1.0 for client in range(30)} | {0: 28.9}) == set()  # all others together are 29


def test_two_answers_do_not_show_which_of_them_is_usual_nor_do_zeros() -> None:
    assert outliers({0: 1.0, 1: 1e30}) == set()
    assert outliers({0: 0.0, 1: 0.0, 2: 1.0, 3: 1e30}) == set()


def test_a_client_with_more_steps_may_go_farther_but_not_without_end() -> None:
    sizes = {0: 1.0, 1: 1.0, 2: 1.0, 3: 90.0}
    assert outliers(sizes) == {3}
    assert outliers(sizes, c3=5) == set()
    assert outliers({**sizes, 3: 301.0}, c3=1_000_000) == {3}  # it says itself how many they are


def test_what_is_usual_beyond_the_phase_bounds_from_below() -> None:
    """Under EF21 old clients send next to nothing, and a new one the whole change."""
    sizes = {0: 0.01, 1: 0.01, 2: 0.01, 3: 1.0}
    assert outliers(sizes) == {3}
    assert outliers(sizes, floor=1.0) == set()


@given(
    honest=st.lists(st.floats(0.2, 5.0), min_size=3, max_size=20),
    hostile=st.lists(st.floats(1e4, 1e38), min_size=1, max_size=9),
)
def test_fewer_than_half_are_found_whatever_they_send_and_no_other(honest: list[float], hostile: list[float]) -> None:
    hostile = hostile[: len(honest) - 1]
    everyone = dict(enumerate([*honest, *hostile]))
    assert outliers(everyone) == set(range(len(honest), len(everyone)))


def test_sizes_are_those_of_decoded_numbers() -> None:
    @dataclass
    class Content:
        change: Tensor
        places: Tensor
        values: tuple[Any, ...]

    content = Content(torch.tensor([3.0, 4.0]), torch.tensor([7, 9]), (Sparse(torch.tensor([1]), torch.ones(1), 3), 5))
    assert sizes(content) == {"change": 5.0, "values.0": 1.0}
    assert sizes(torch.full((4,), 3e38)) == {"": pytest.approx(6e38)}
    assert sizes({"a": torch.full((1,), torch.inf)}) == {"a": torch.inf}


def test_a_masked_update_is_as_large_as_its_change_and_prototypes_as_their_longest_row() -> None:
    update = Update(torch.full((4,), 100.0), torch.tensor([2]), torch.tensor([102.0]), torch.tensor([2.0]))
    assert sizes((update, None)) == {"0.change": 2.0}
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]])
    assert sizes(ClassMeans(rows, torch.tensor([0, 1, 1]))) == {"prototypes": 5.0}
    assert sizes(Prototypes(torch.tensor([[0.0, 6.0]]), rows, torch.tensor([0, 1, 1]))) == {"prototypes": 6.0}
    assert longest_row(torch.zeros(0, 2)) == 0.0


def test_held_answers_come_back_in_order_from_memory_and_from_the_file() -> None:
    reads: list[int] = []

    def read(client: int, answer: Message) -> Tensor:
        reads.append(client)
        value = answer["x"]
        assert isinstance(value, Tensor)
        return value * 2

    held = Held[Tensor](read, in_memory=2 * 40)
    for client in range(6):
        answer: Message = {"x": torch.full((10,), float(client))}
        held.add(client, answer, read(client, answer))
    reads.clear()
    taken = list(held.take([0, 1, 3, 5]))
    assert [client for client, _ in taken] == [0, 1, 3, 5]
    assert [float(content[0]) for _, content in taken] == [0.0, 2.0, 6.0, 10.0]
    assert reads == [3, 5]  # the first two were in memory, and 2 and 4 were not read


def test_a_tensor_that_all_contents_share_is_counted_once() -> None:
    common = torch.zeros(1000)
    held = Held[tuple[Tensor, Tensor]](lambda client, answer: pytest.fail("read again"), in_memory=4000 + 10 * 40)
    for client in range(10):
        held.add(client, {}, (common, torch.zeros(10)))
    assert len(list(held.take(range(10)))) == 10
