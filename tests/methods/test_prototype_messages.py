"""Prototypes and anchors as messages: there and back, and everything that a client could get wrong."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refprotofl.methods import Refused
from refprotofl.methods.common.prototypes import (
    Prototypes,
    read_anchors,
    read_prototypes,
    write_anchors,
    write_prototypes,
)
from refprotofl.wire import Message, decode, encode

CLASSES, WIDTH, PUBLIC = 6, 3, [1, 4]


def good() -> Message:
    return {
        "public_prototypes": torch.ones(2, WIDTH),
        "local_prototypes": torch.full((2, WIDTH), 2.0),
        "classes": torch.tensor([0, 5], dtype=torch.uint8),
        "counts": torch.tensor([7, 9], dtype=torch.int32),
    }


@given(st.sets(st.integers(0, CLASSES - 1)), st.lists(st.integers(0, 1000), min_size=CLASSES, max_size=CLASSES))
def test_prototypes_come_back_as_they_were(public: set[int], held: list[int]) -> None:
    counts = torch.tensor([0 if number in public else count for number, count in enumerate(held)])
    local = torch.where(counts.unsqueeze(1) > 0, torch.arange(CLASSES * WIDTH).view(CLASSES, WIDTH) / 7, 0.0)
    sent = Prototypes(torch.rand(len(public), WIDTH), local, counts)
    message = decode(encode(write_prototypes(sent)))
    back = read_prototypes(message, sorted(public), CLASSES, WIDTH)
    assert back.public.equal(sent.public)
    assert back.local.equal(sent.local)
    assert back.counts.equal(sent.counts)
    rows = len(public) + int((counts > 0).sum())
    assert sum(value.numel() for name, value in message.items() if "prototypes" in name) == rows * WIDTH  # type: ignore[union-attr]


def test_with_full_coverage_nothing_but_the_public_means_is_sent() -> None:
    whole = Prototypes(torch.ones(CLASSES, WIDTH), torch.zeros(CLASSES, WIDTH), torch.zeros(CLASSES, dtype=torch.int64))
    assert list(write_prototypes(whole)) == ["public_prototypes"]


def test_more_than_256_classes_fit_their_ids() -> None:
    counts = torch.zeros(300, dtype=torch.int64)
    counts[299] = 4
    local = torch.zeros(300, 1)
    local[299] = 0.5
    message = write_prototypes(Prototypes(torch.zeros(0, 1), local, counts))
    back = read_prototypes(decode(encode(message)), [], 300, 1)
    assert back.counts.nonzero().flatten().tolist() == [299]
    assert back.local[299].item() == 0.5


def test_the_well_formed_message_is_read() -> None:
    read = read_prototypes(good(), PUBLIC, CLASSES, WIDTH)
    assert read.counts.tolist() == [7, 0, 0, 0, 0, 9]
    assert read.local[5].tolist() == [2, 2, 2]
    assert read.public.tolist() == [[1, 1, 1], [1, 1, 1]]


def without(*names: str) -> Callable[[Message], Message]:
    return lambda message: {name: value for name, value in message.items() if name not in names}


def having(name: str, value: object) -> Callable[[Message], Message]:
    return lambda message: {**message, name: value}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(having("public_prototypes", torch.ones(3, WIDTH)), id="a public class too many"),
        pytest.param(having("public_prototypes", torch.ones(2, WIDTH + 1)), id="another width"),
        pytest.param(having("public_prototypes", torch.ones(2 * WIDTH)), id="a vector, not a matrix"),
        pytest.param(having("public_prototypes", torch.ones(2, WIDTH).double()), id="another type"),
        pytest.param(having("public_prototypes", 1.0), id="a number, not a matrix"),
        pytest.param(having("local_prototypes", torch.ones(3, WIDTH)), id="a local row too many"),
        pytest.param(having("local_prototypes", torch.ones(2, WIDTH).half()), id="local rows of another type"),
        pytest.param(having("classes", torch.tensor([0, 0])), id="a class twice"),
        pytest.param(having("classes", torch.tensor([0, CLASSES])), id="an unknown class"),
        pytest.param(having("classes", torch.tensor([-1, 5])), id="a negative class"),
        pytest.param(having("classes", torch.tensor([0, 4])), id="a public class"),
        pytest.param(having("classes", torch.tensor([0.0, 5.0])), id="classes that are not whole"),
        pytest.param(having("classes", torch.tensor([[0, 5]])), id="classes that are no vector"),
        pytest.param(having("classes", torch.tensor([0, 2, 5])), id="more classes than counts"),
        pytest.param(having("classes", 3), id="classes that are no tensor"),
        pytest.param(having("counts", torch.tensor([7, 0])), id="a count of nothing"),
        pytest.param(having("counts", torch.tensor([7, -1])), id="a negative count"),
        pytest.param(having("counts", torch.tensor([7])), id="too few counts"),
        pytest.param(having("counts", torch.tensor([7.0, 9.0])), id="counts that are not whole"),
    ],
)
def test_malformed_prototypes_are_refused(spoil: Callable[[Message], Message]) -> None:
    with pytest.raises(Refused):
        read_prototypes(decode(encode(spoil(good()))), PUBLIC, CLASSES, WIDTH)


@pytest.mark.parametrize("missing", ["public_prototypes", "classes", "counts"])
def test_a_missing_field_is_a_key_error_that_the_server_takes_as_a_refusal(missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        read_prototypes(without(missing)(good()), PUBLIC, CLASSES, WIDTH)


@given(st.lists(st.booleans(), min_size=CLASSES, max_size=CLASSES))
def test_anchors_come_back_as_they_were_and_undefined_rows_are_not_sent(flags: list[bool]) -> None:
    defined = torch.tensor(flags)
    anchors = torch.where(defined.unsqueeze(1), torch.rand(CLASSES, WIDTH), float("nan"))
    message = write_anchors(anchors, defined)
    back, known = read_anchors(decode(encode(message)), CLASSES, WIDTH)
    assert known.equal(defined)
    assert back[defined].equal(anchors[defined])
    assert back[~defined].eq(0).all()
    sent = message.get("anchors")
    assert (0 if sent is None else sent.numel()) == WIDTH * sum(flags)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "message",
    [
        {"anchors": torch.ones(CLASSES - 1, WIDTH)},
        {"anchors": torch.ones(2, WIDTH), "classes": torch.tensor([0, CLASSES])},
        {"anchors": torch.ones(2, WIDTH), "classes": torch.tensor([0, -1])},
        {"anchors": torch.ones(2, WIDTH), "classes": torch.tensor([0])},
        {"anchors": torch.ones(CLASSES, WIDTH + 1)},
    ],
)
def test_malformed_anchors_are_refused(message: Message) -> None:
    with pytest.raises(Refused):
        read_anchors(message, CLASSES, WIDTH)
