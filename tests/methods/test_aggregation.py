"""One fold a round: the weighted mean by hand and against slow code, a rule that must have everything, streaming."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from refprotofl.methods import METHODS
from refprotofl.methods.aggregators.mean import Mean
from refprotofl.methods.base.aggregation import Aggregator, Normalise, Upload, aggregate_uploads, apply_update
from refprotofl.methods.base.server import ServerContext
from refprotofl.methods.common import weights
from refprotofl.wire.tensors import same_bits

BOTH: tuple[Normalise, ...] = ("senders", "participants")


def upload(change: list[float], weight: float, places: list[int] | None = None, progress: float = 1.0) -> Upload:
    where = None if places is None else torch.tensor(places, dtype=torch.int64)
    return Upload(torch.tensor(change, dtype=torch.float64), weight, where, progress)


# The mean by hand


@pytest.mark.parametrize("normalise", BOTH)
def test_of_whole_changes_it_is_the_mean_weighted_by_data(normalise: Normalise) -> None:
    move = aggregate_uploads(Mean(normalise), 2, [upload([3, 0], 30), upload([1, 4], 10)])
    assert move.dtype == torch.float64
    assert move.tolist() == [2.5, 1.0]


@pytest.mark.parametrize(
    ("normalise", "expected"), [("senders", [2.5, -4, 0, -2]), ("participants", [2.5, -1, 0, -1.5])]
)
def test_of_some_coordinates_it_is_over_their_senders_or_over_everyone(
    normalise: Normalise, expected: list[float]
) -> None:
    uploads = [upload([3, -2], 30, [0, 3]), upload([1, -4], 10, [0, 1])]
    assert aggregate_uploads(Mean(normalise), 4, uploads).tolist() == expected


@pytest.mark.parametrize(("normalise", "expected"), [("senders", [1, 4, 3]), ("participants", [0.75, 4, 2.25])])
def test_a_client_that_sent_everything_is_among_the_senders_of_each_coordinate(
    normalise: Normalise, expected: list[float]
) -> None:
    whole, some = upload([1, 2, 3], 3), upload([10], 1, [1])
    for order in ([whole, some], [some, whole]):
        assert aggregate_uploads(Mean(normalise), 3, order).tolist() == expected


@pytest.mark.parametrize("normalise", BOTH)
def test_changes_are_divided_by_progress_and_the_mean_is_scaled_back_by_the_mean_progress(normalise: Normalise) -> None:
    # Mean progress (1 * 2 + 3 * 4) / 4 = 3.5; normalised (1 * 4 / 2 + 3 * 8 / 4) / 4 = 2.
    assert aggregate_uploads(Mean(normalise), 1, [upload([4], 1, progress=2), upload([8], 3, progress=4)]).tolist() == [
        7.0
    ]


@pytest.mark.parametrize(("normalise", "expected"), [("senders", [7, 14]), ("participants", [7, 10.5])])
def test_progress_counts_also_where_only_some_sent(normalise: Normalise, expected: list[float]) -> None:
    # As above; of the second coordinate 3.5 * (3 * 16 / 4) / 3 or / 4.
    uploads = [upload([4], 1, [0], progress=2), upload([8, 16], 3, [0, 1], progress=4)]
    assert aggregate_uploads(Mean(normalise), 2, uploads).tolist() == expected


def test_equal_progress_is_no_progress_at_all() -> None:
    def uploads(progress: float) -> list[Upload]:
        return [upload([0.1, -0.3], 7, progress=progress), upload([1e-9, 5], 11, progress=progress)]

    assert same_bits(aggregate_uploads(Mean(), 2, uploads(8.0)), aggregate_uploads(Mean(), 2, uploads(1.0)))


def test_one_client_alone_moves_the_vector_by_its_change_whatever_its_progress() -> None:
    assert aggregate_uploads(Mean(), 2, [upload([3, -5], 17, progress=4)]).tolist() == [3, -5]


def test_small_changes_count_next_to_large_ones_that_cancel() -> None:
    uploads = [upload([1e8], 1), upload([1], 1), upload([-1e8], 1)]
    assert aggregate_uploads(Mean(), 1, uploads).item() == pytest.approx(
        1 / 3, rel=1e-6
    )  # in float32 the 1 would be lost


# Coordinates without senders

AWKWARD = torch.tensor([-0.0, 1e-45, 0.1, float("inf")])


@pytest.mark.parametrize("normalise", BOTH)
@pytest.mark.parametrize("uploads", [[], [upload([], 5, [])], [upload([], 5, []), upload([], 2, [])]])
def test_without_any_value_every_bit_stays(normalise: Normalise, uploads: list[Upload]) -> None:
    move = aggregate_uploads(Mean(normalise), 4, uploads)
    assert move.eq(0).all()
    assert move.signbit().all()  # +0.0 would make 0.0 of -0.0
    assert same_bits(apply_update(AWKWARD, move), AWKWARD)


@pytest.mark.parametrize("normalise", BOTH)
def test_a_coordinate_that_no_client_sent_keeps_its_bits_next_to_others_that_moved(normalise: Normalise) -> None:
    reference = torch.tensor([-0.0, 1.0, 1e-45, -0.0])
    after = apply_update(reference, aggregate_uploads(Mean(normalise), 4, [upload([2], 3, [1]), upload([4], 3, [1])]))
    assert same_bits(after, torch.tensor([-0.0, 4.0, 1e-45, -0.0]))


def test_a_sent_zero_is_a_change_like_any_other() -> None:
    assert aggregate_uploads(Mean("senders"), 1, [upload([0], 1, [0]), upload([4], 1, [0])]).tolist() == [2]


def test_the_vector_is_rounded_once_to_its_own_type() -> None:
    reference = torch.tensor([1.0, 2.0**24])
    move = torch.tensor([2.0**-25 + 2.0**-50, 1.0 + 2.0**-20], dtype=torch.float64)
    after = apply_update(reference, move)
    assert after.dtype == torch.float32
    assert after.tolist() == [1.0, 2.0**24 + 2]  # both are nearer than what float32 makes of the move first
    assert reference.tolist() == [1.0, 2.0**24]


# Against slow code


@st.composite
def rounds(draw: st.DrawFn) -> tuple[int, list[Upload]]:
    """A vector's size and uploads of whole and of some coordinates, each with its progress."""
    size = draw(st.integers(1, 8))
    numbers = st.floats(-100, 100, width=32)
    uploads = []
    for _ in range(draw(st.integers(0, 5))):
        places = draw(st.none() | st.sets(st.integers(0, size - 1)).map(sorted))
        sent = size if places is None else len(places)
        change = draw(st.lists(numbers, min_size=sent, max_size=sent))
        uploads.append(upload(change, draw(st.integers(1, 999)), places, draw(st.sampled_from([1.0, 0.5, 3.0, 86.68]))))
    return size, uploads


def slowly(size: int, uploads: Sequence[Upload], normalise: Normalise) -> list[float | None]:
    """A coordinate at a time, in fractions; None where no client sent anything."""
    total = sum(Fraction(one.weight) for one in uploads)
    scale = sum(Fraction(one.weight) * Fraction(one.progress) for one in uploads) / total if uploads else Fraction(1)
    result: list[float | None] = []
    for index in range(size):
        senders, summed = Fraction(0), Fraction(0)
        for one in uploads:
            places = list(range(size)) if one.indices is None else one.indices.tolist()
            if index in places:
                senders += Fraction(one.weight)
                value = Fraction(one.change[places.index(index)].item())
                summed += Fraction(one.weight) * value / Fraction(one.progress)
        over = senders if normalise == "senders" else total
        result.append(float(scale * summed / over) if senders else None)
    return result


@pytest.mark.parametrize("normalise", BOTH)
@given(case=rounds())
def test_the_mean_agrees_with_fractions_a_coordinate_at_a_time(
    normalise: Normalise, case: tuple[int, list[Upload]]
) -> None:
    size, uploads = case
    move = aggregate_uploads(Mean(normalise), size, iter(uploads))
    for found, expected in zip(move, slowly(size, uploads, normalise), strict=True):
        if expected is None:
            assert same_bits(found, torch.tensor(-0.0, dtype=torch.float64))
        else:
            assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(case=rounds())
def test_places_that_are_all_places_are_the_whole_change(case: tuple[int, list[Upload]]) -> None:
    size, uploads = case
    whole = [one for one in uploads if one.indices is None]
    listed = [Upload(one.change, one.weight, torch.arange(size), one.progress) for one in whole]
    assert torch.allclose(
        aggregate_uploads(Mean(), size, whole), aggregate_uploads(Mean(), size, listed), rtol=1e-12, atol=1e-12
    )


# A rule that must have all uploads at once


class Median(Aggregator):
    """Coordinate-wise, over who sent the coordinate; of an even number the mean of the middle two."""

    holds = True

    def __init__(self) -> None:
        super().__init__()
        self.given: list[object] = []

    def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
        self.given.append(uploads)
        held = list(uploads)
        assert held == list(uploads)  # they can be gone through again
        move = torch.full((size,), -0.0, dtype=torch.float64)
        for index in range(size):
            sent = sorted(
                float(one.change[index if one.indices is None else one.indices.tolist().index(index)])
                for one in held
                if one.indices is None or index in one.indices.tolist()
            )
            if sent:
                middle = sent[(len(sent) - 1) // 2], sent[len(sent) // 2]
                move[index] = sum(middle) / 2
        return move


def test_a_median_gets_all_uploads_at_once_in_their_order_and_shrugs_off_an_outlier() -> None:
    uploads = [
        upload([1, 2, 3, 4], 1, [0, 1, 2, 3]),
        upload([1e9, -1e9, 1e9], 999, [0, 1, 2]),
        upload([2, 3], 1, [0, 1]),
        upload([], 5, []),
    ]
    aggregator = Median()
    assert aggregate_uploads(aggregator, 5, iter(uploads)).tolist() == [2, 2, 5e8 + 1.5, 4, 0]
    assert aggregator.given == [tuple(uploads)]
    whole = [upload([1, 2], 1), upload([1e9, -1e9], 999), upload([2, 3], 1)]
    assert aggregate_uploads(Median(), 2, iter(whole)).tolist() == [2, 2]


def test_a_median_of_no_client_moves_nothing() -> None:
    assert same_bits(apply_update(AWKWARD, aggregate_uploads(Median(), 4, iter([]))), AWKWARD)


def test_a_rule_that_sums_up_is_handed_the_uploads_as_they_come() -> None:
    seen: list[object] = []

    class Watched(Mean):
        def aggregate(self, size: int, uploads: Iterable[Upload]) -> Tensor:
            seen.append(uploads)
            return super().aggregate(size, uploads)

    stream = iter([upload([1], 1)])
    aggregate_uploads(Watched(), 1, stream)
    assert seen == [stream]


# Streaming


class Counted:
    """Makes changes one after the other; `most` is how many earlier ones were alive when another was made."""

    def __init__(self, number: int, size: int = 1000) -> None:
        self.number, self.size, self.most = number, size, 0

    def changes(self) -> Iterator[Tensor]:
        made: list[weakref.ref[Tensor]] = []
        for _ in range(self.number):
            self.most = max(self.most, sum(one() is not None for one in made))
            change = torch.ones(self.size, dtype=torch.float64)
            made.append(weakref.ref(change))
            yield change
            del change


@pytest.mark.parametrize("places", [None, torch.arange(1000)], ids=["whole", "some"])
def test_the_mean_keeps_one_upload_alive_at_a_time(places: Tensor | None) -> None:
    counted = Counted(40)
    move = aggregate_uploads(Mean(), 1000, (Upload(change, 2.0, places) for change in counted.changes()))
    assert move.eq(1).all()
    assert counted.most <= 1


def test_a_rule_that_holds_keeps_all_of_them() -> None:
    counted = Counted(40, size=3)
    assert aggregate_uploads(Median(), 3, (Upload(change, 2.0) for change in counted.changes())).tolist() == [1, 1, 1]
    assert counted.most == 39


@pytest.mark.parametrize("method", ["fedavg", "fednova"])
def test_a_server_that_averages_keeps_one_answer_alive_at_a_time(scope: Callable[..., Any], method: str) -> None:
    small = scope({"method": method, "clients": 40})
    server = METHODS[method].server(ServerContext(small.experiment, small.model, small.parts, options=small.options))
    server.samples += 5
    reference, counted = torch.zeros(small.shared), Counted(40, small.shared)
    if method == "fedavg":
        after = weights.step(server, 1, reference, enumerate(counted.changes()))
        assert after.eq(1).all()
    else:
        answers = ((client, (change, 2.0, 0)) for client, change in enumerate(counted.changes()))
        assert aggregate_uploads(server.aggregator, small.shared, server.uploads(1, answers)).eq(1).all()  # type: ignore[attr-defined]
    assert counted.most <= 1
