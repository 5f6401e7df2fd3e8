"""Envelopes are read back unchanged, and other messages are rejected."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.task_identity import TaskIdentity

from refprotofl.deploy.headers import Answered, Greeted, Route
from refprotofl.deploy.transport import Envelope, Unreadable
from refprotofl.engines.flower.records import PART, inflate, objects_of, unwrap, wrap

ROUTE = Route("a" * 32, 1, 2, 3, 0, "train", True, "b" * 64, ["c" * 64])


ARRAY = Array(dtype="uint8", shape=(1,), stype="numpy.ndarray", data=b"")


@pytest.mark.parametrize("size", [0, 10, PART, PART + 1, 3 * PART])
def test_an_envelope_comes_back_as_it_was(size: int) -> None:
    envelope = Envelope({"round": 3, "keeps": True, "verb": "train"}, bytes(size))
    assert unwrap(wrap(envelope)) == envelope


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"header": ConfigRecord({"json": "{"}), "payload-0": ConfigRecord({"bytes": b""})}),
        RecordDict({"header": ConfigRecord({"json": "[1]"}), "payload-0": ConfigRecord({"bytes": b""})}),
        RecordDict({"header": ConfigRecord({"json": 7}), "payload-0": ConfigRecord({"bytes": b""})}),
        RecordDict({"header": ConfigRecord({"json": "{}"}), "payload-0": ConfigRecord({"bytes": "text"})}),
        RecordDict({"header": ConfigRecord({"json": "{}"})}),
        RecordDict({"header": ConfigRecord({"json": "[" * 100_000})}),
        RecordDict({"header": ConfigRecord({"json": f'{{"round": {"1" * 5_000}}}'})}),
        RecordDict({"header": ConfigRecord({"json": f'"{"x" * PART}"'})}),
        RecordDict({"header": ConfigRecord({"json": "{}"}), "payload-0": ArrayRecord({"bytes": ARRAY})}),
        RecordDict({"header": ConfigRecord({"json": "{}"}), "payload-1": ConfigRecord({"bytes": b""})}),
    ],
)
def test_anything_else_is_unreadable(content: RecordDict) -> None:
    with pytest.raises(Unreadable):
        unwrap(content)


def test_no_two_messages_have_a_record_in_common() -> None:
    """Else a node could reserve, or probe for, what another is going to send."""
    one, other = (wrap(Envelope({"code": None}, b"")) for _ in range(2))
    assert not {record.object_id for record in one.values()} & {record.object_id for record in other.values()}


@pytest.mark.parametrize("size", [0, 10, PART, 3 * PART + 1])
def test_a_message_is_built_from_its_objects(size: int) -> None:
    message = sent(Envelope({"round": 3}, bytes(size)))
    contents = {one: each.deflate() for one, each in get_all_nested_objects(message).items()}
    assert unwrap(inflate(message.object_id, contents).content).payload == bytes(size)
    assert len(contents) <= objects_of(size)


@pytest.mark.parametrize(
    "content", [b"ConfigRecord  0\0", b"Message  0\0", b"Message  3\0abc", b"", b"\xff", b"Array  0\0"]
)
def test_objects_that_are_no_message_are_unreadable(content: bytes) -> None:
    with pytest.raises(Unreadable):
        inflate("a", {"a": content})


def test_an_array_is_never_built() -> None:
    """A few bytes of it may encode any number."""
    message = sent(Envelope({}))
    message.content["payload-0"] = ArrayRecord({"bytes": Array(np.zeros(10, np.uint8))})
    contents = {one: each.deflate() for one, each in get_all_nested_objects(message).items()}
    with pytest.raises(Unreadable, match="it has records of another kind"):
        inflate(message.object_id, contents)


def sent(envelope: Envelope) -> Message:
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    return Message(wrap(envelope), dst_node_id=7, message_type="query.ask")


def test_a_route_is_read_back_and_its_key_does_not_depend_on_the_attempt() -> None:
    assert Route.read(ROUTE.header()) == ROUTE
    again = Route.read({**ROUTE.header(), "attempt": 5})
    assert again.key(b"x") == ROUTE.key(b"x") != ROUTE.key(b"y")
    assert Route.read({**ROUTE.header(), "base": "d" * 64}).key(b"x") != ROUTE.key(b"x")


@pytest.mark.parametrize(
    "changed",
    [
        {"round": "2"},
        {"round": -1},
        {"round": 10**30},
        {"client": None},
        {"keeps": 1},
        {"retain": "kept"},
        {"retain": ["kept"]},
        {"base": "other"},
        {"run": "../" * 8},
        {"verb": "x" * 1_000},
    ],
)
def test_a_route_that_is_none_is_unreadable(changed: dict[str, object]) -> None:
    with pytest.raises(Unreadable):
        Route.read({**ROUTE.header(), **changed})


def test_an_answer_of_another_phase_is_recognised() -> None:
    answer = Answered.to(ROUTE, state="d" * 64)
    assert Answered.read(answer.header()).belongs_to(ROUTE)
    for name, value in {"run": "b" * 32, "client": 0, "round": 1, "phase": 2}.items():
        assert not Answered.read({**answer.header(), name: value}).belongs_to(ROUTE)
    assert Answered.read({**answer.header(), "code": "made up"}).code == "failed"


@pytest.mark.parametrize(
    "changed",
    [
        *({"state": state} for state in ("no digest", "F" * 64, "f" * 63, "f" * 64 + "\n", "f" * 10**6, None, 7)),
        *({"phase": phase} for phase in (-1, 10**18, 2.0, True, "3")),
        {"run": "a" * 33},
    ],
    ids=lambda changed: str(changed)[:24],
)
def test_an_answer_that_is_none_is_unreadable(changed: dict[str, object]) -> None:
    with pytest.raises(Unreadable):
        Answered.read({**Answered.to(ROUTE).header(), **changed})


@pytest.mark.parametrize("changed", [{"name": "x" * 64}, {"name": 7}, {"name": ["node-0"]}, {"protocol": "1"}])
def test_a_greeting_that_is_none_is_unreadable(changed: dict[str, object]) -> None:
    assert Greeted.read({"protocol": 1, "name": "node-3"}).name == "node-3"
    assert Greeted.read({"protocol": 1, "code": ["made up"]}).code == "failed"
    with pytest.raises(Unreadable):
        Greeted.read({"protocol": 1, **changed})


def test_a_header_that_is_nested_without_end_is_unreadable() -> None:
    nested: list[object] = []
    for _ in range(2_000):
        nested = [nested]
    with pytest.raises(Unreadable):
        Answered.read({**Answered.to(ROUTE).header(), "more": nested})
