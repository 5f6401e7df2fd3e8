"""What crosses is read back as it was, and nothing else is taken for it."""

import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from refprotofl.deploy.envelope import Envelope, Unreadable
from refprotofl.deploy.routes import Answered, Greeted, Route
from refprotofl.engines.flower.messages import WHOLE, unwrap, wrap

ROUTE = Route("a" * 32, 1, 2, 3, 0, "train", True, "b" * 64, ["c" * 64])


FIELDS = b"{'descr': '|u1', 'fortran_order': False, 'shape': (4611686018427387904,), }\n"
HUGE = b"\x93NUMPY\1\0" + len(FIELDS).to_bytes(2, "little") + FIELDS


def made(data: bytes) -> Array:
    """What says that it is an array, and is what the sender likes."""
    return Array(dtype="uint8", shape=(1,), stype="numpy.ndarray", data=data)


@pytest.mark.parametrize("size", [0, 10, WHOLE, WHOLE + 1])
def test_an_envelope_comes_back_as_it_was(size: int) -> None:
    envelope = Envelope({"round": 3, "keeps": True, "verb": "train"}, bytes(size))
    assert unwrap(wrap(envelope)) == envelope


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"header": ConfigRecord({"json": "{"}), "payload": ConfigRecord({"bytes": b""})}),
        RecordDict({"header": ConfigRecord({"json": "[1]"}), "payload": ConfigRecord({"bytes": b""})}),
        RecordDict({"header": ConfigRecord({"json": 7}), "payload": ConfigRecord({"bytes": b""})}),
        RecordDict({"header": ConfigRecord({"json": "{}"}), "payload": ConfigRecord({"bytes": "text"})}),
        RecordDict({"header": ConfigRecord({"json": "{}"})}),
        RecordDict({"header": ConfigRecord({"json": "[" * 100_000})}),
        RecordDict({"header": ConfigRecord({"json": f'{{"round": {"1" * 5_000}}}'})}),
        RecordDict({"header": ConfigRecord({"json": f'"{"x" * WHOLE}"'})}),
        RecordDict({"header": ConfigRecord({"json": "{}"}), "payload": ArrayRecord({"bytes": made(b"")})}),
        RecordDict({"header": ConfigRecord({"json": "{}"}), "payload": ArrayRecord({"bytes": made(b"PK\3\4")})}),
        RecordDict({"header": ConfigRecord({"json": "{}"}), "payload": ArrayRecord({"bytes": made(HUGE)})}),
    ],
)
def test_anything_else_is_unreadable(content: RecordDict) -> None:
    with pytest.raises(Unreadable):
        unwrap(content)


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
