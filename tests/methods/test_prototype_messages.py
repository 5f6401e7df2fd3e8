"""Prototypes and anchors as messages: there and back, and everything that a client could get wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refprotofl.methods import Refused
from refprotofl.methods.base.schema import MessageSchemas, ValidatedMessage, read_answer, read_request
from refprotofl.methods.builtin.refprotofl.server import RefProtoServer
from refprotofl.methods.common.prototypes import (
    Prototypes,
    read_anchors,
    read_prototypes,
    write_anchors,
    write_prototypes,
)
from refprotofl.wire import Message, decode, encode

CLASSES, WIDTH, PUBLIC = 6, 3, [1, 4]


def declared(scope: Any, public: list[int], classes: int = CLASSES, width: int = WIDTH) -> MessageSchemas:
    """Return RefProtoFL's schemas if these classes are public."""
    per_class = {"per-class": 1, "classes": public} if public else {"per-class": 0, "coverage": 0.0}
    return RefProtoServer.message_schemas(scope({"public": per_class}, classes=classes, width=width))


def server_reads(
    scope: Any, message: Message, public: list[int], classes: int = CLASSES, width: int = WIDTH
) -> Prototypes:
    """By the declared fields, then between them."""
    answer = read_answer(declared(scope, public, classes, width), "prototypes", message)
    return read_prototypes(answer, public, classes, width)


def client_reads(scope: Any, message: Message) -> tuple[torch.Tensor, torch.Tensor]:
    return read_anchors(read_request(declared(scope, PUBLIC), "train", message), CLASSES, WIDTH)


def good() -> Message:
    return {
        "public_prototypes": torch.ones(2, WIDTH),
        "local_prototypes": torch.full((2, WIDTH), 2.0),
        "classes": torch.tensor([0, 5], dtype=torch.uint8),
        "counts": torch.tensor([7, 9], dtype=torch.int32),
    }


@given(st.sets(st.integers(0, CLASSES - 1)), st.lists(st.integers(0, 1000), min_size=CLASSES, max_size=CLASSES))
def test_prototypes_come_back_as_they_were(scope: Any, public: set[int], held: list[int]) -> None:
    counts = torch.tensor([0 if number in public else count for number, count in enumerate(held)])
    local = torch.where(counts.unsqueeze(1) > 0, torch.arange(CLASSES * WIDTH).view(CLASSES, WIDTH) / 7, 0.0)
    sent = Prototypes(torch.rand(len(public), WIDTH), local, counts)
    message = decode(encode(write_prototypes(sent)))
    back = server_reads(scope, message, sorted(public))
    assert back.public.equal(sent.public)
    assert back.local.equal(sent.local)
    assert back.counts.equal(sent.counts)
    rows = len(public) + int((counts > 0).sum())
    assert sum(value.numel() for name, value in message.items() if "prototypes" in name) == rows * WIDTH  # type: ignore[union-attr, misc]


def test_with_full_coverage_nothing_but_the_public_means_is_sent() -> None:
    whole = Prototypes(torch.ones(CLASSES, WIDTH), torch.zeros(CLASSES, WIDTH), torch.zeros(CLASSES, dtype=torch.int64))
    assert list(write_prototypes(whole)) == ["public_prototypes"]


def test_more_than_256_classes_fit_their_ids(scope: Any) -> None:
    counts = torch.zeros(300, dtype=torch.int64)
    counts[299] = 4
    local = torch.zeros(300, 1)
    local[299] = 0.5
    message = write_prototypes(Prototypes(torch.zeros(0, 1), local, counts))
    back = server_reads(scope, decode(encode(message)), [], 300, 1)
    assert back.counts.nonzero().flatten().tolist() == [299]
    assert back.local[299].item() == 0.5


def test_the_well_formed_message_is_read(scope: Any) -> None:
    read = server_reads(scope, good(), PUBLIC)
    assert read.counts.tolist() == [7, 0, 0, 0, 0, 9]
    assert read.local[5].tolist() == [2, 2, 2]
    assert read.public.tolist() == [[1, 1, 1], [1, 1, 1]]


def without(*names: str) -> Callable[[Message], Message]:
    return lambda message: {name: value for name, value in message.items() if name not in names}


def having(name: str, value: object) -> Callable[[Message], Message]:
    return lambda message: {**message, name: value}  # type: ignore[dict-item]


def spoilt(name: str, value: object, sentence: str, id: str) -> Any:
    return pytest.param(having(name, value), sentence, id=id)


TOGETHER = "local_prototypes, classes and counts do not belong together, or a class comes twice"
PUBLIC_ROWS = f"public_prototypes is not a float32 matrix of 2 x {WIDTH}"
WHOLE = "is not a whole vector"


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        spoilt("public_prototypes", torch.ones(3, WIDTH), PUBLIC_ROWS, "a public class too many"),
        spoilt("public_prototypes", torch.ones(2, WIDTH + 1), PUBLIC_ROWS, "another width"),
        spoilt("public_prototypes", torch.ones(2 * WIDTH), PUBLIC_ROWS, "a vector, not a matrix"),
        spoilt("public_prototypes", torch.ones(2, WIDTH).double(), PUBLIC_ROWS, "another type"),
        spoilt("public_prototypes", 1.0, PUBLIC_ROWS, "a number, not a matrix"),
        spoilt("local_prototypes", torch.ones(3, WIDTH), TOGETHER, "a local row too many"),
        spoilt(
            "local_prototypes",
            torch.ones(2, WIDTH).half(),
            f"local_prototypes is not a float32 matrix of any x {WIDTH}",
            "local rows of another type",
        ),
        spoilt("classes", torch.tensor([0, 0]), TOGETHER, "a class twice"),
        spoilt("classes", torch.tensor([0, CLASSES]), "classes has a number above 5", "an unknown class"),
        spoilt("classes", torch.tensor([-1, 5]), "classes has a number below 0", "a negative class"),
        spoilt("classes", torch.tensor([0, 4]), "a local prototype is of a public class", "a public class"),
        spoilt("classes", torch.tensor([0.0, 5.0]), f"classes {WHOLE}", "classes that are not whole"),
        spoilt("classes", torch.tensor([[0, 5]]), f"classes {WHOLE}", "classes that are no vector"),
        spoilt("classes", torch.tensor([0, 2, 5]), TOGETHER, "more classes than counts"),
        spoilt("classes", 3, f"classes {WHOLE}", "classes that are no tensor"),
        spoilt("counts", torch.tensor([7, 0]), "counts has a number below 1", "a count of nothing"),
        spoilt("counts", torch.tensor([7, -1]), "counts has a number below 1", "a negative count"),
        spoilt("counts", torch.tensor([7]), TOGETHER, "too few counts"),
        spoilt("counts", torch.tensor([7.0, 9.0]), f"counts {WHOLE}", "counts that are not whole"),
        spoilt("extra", 1, "the field 'extra' was not asked for", "a field too many"),
    ],
)
def test_malformed_prototypes_are_refused(scope: Any, spoil: Callable[[Message], Message], sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        server_reads(scope, decode(encode(spoil(good()))), PUBLIC)


def test_missing_public_prototypes_are_refused(scope: Any) -> None:
    with pytest.raises(Refused, match="the field 'public_prototypes' is missing"):
        server_reads(scope, without("public_prototypes")(good()), PUBLIC)


@pytest.mark.parametrize("missing", ["public_prototypes", "classes", "counts"])
def test_a_missing_field_is_a_key_error_that_the_server_takes_as_a_refusal(missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        read_prototypes(ValidatedMessage(without(missing)(good())), PUBLIC, CLASSES, WIDTH)


@given(st.lists(st.booleans(), min_size=CLASSES, max_size=CLASSES))
def test_anchors_come_back_as_they_were_and_undefined_rows_are_not_sent(scope: Any, flags: list[bool]) -> None:
    defined = torch.tensor(flags)
    anchors = torch.where(defined.unsqueeze(1), torch.rand(CLASSES, WIDTH), float("nan"))
    message = write_anchors(anchors, defined)
    back, known = client_reads(scope, decode(encode(message)))
    assert known.equal(defined)
    assert back[defined].equal(anchors[defined])
    assert back[~defined].eq(0).all()
    sent = message.get("anchors")
    assert (0 if sent is None else sent.numel()) == WIDTH * sum(flags)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"anchors": torch.ones(CLASSES - 1, WIDTH)}, "anchors, classes and counts do not belong together"),
        ({"anchors": torch.ones(2, WIDTH), "classes": torch.tensor([0, CLASSES])}, "classes has a number above 5"),
        ({"anchors": torch.ones(2, WIDTH), "classes": torch.tensor([0, -1])}, "classes has a number below 0"),
        ({"anchors": torch.ones(2, WIDTH), "classes": torch.tensor([0])}, "do not belong together"),
        ({"anchors": torch.ones(2, WIDTH), "classes": torch.tensor([1, 1])}, "a class comes twice"),
        ({"anchors": torch.ones(CLASSES, WIDTH + 1)}, f"anchors is not a float32 matrix of any x {WIDTH}"),
    ],
)
def test_malformed_anchors_are_refused(scope: Any, message: Message, sentence: str) -> None:
    with pytest.raises(Refused, match=sentence):
        client_reads(scope, message)
