"""What crosses is read back as it was, and nothing else is taken for it."""

import pytest
from flwr.app import ConfigRecord, RecordDict

from refprotofl.engines.flower import parcels
from refprotofl.engines.flower.parcels import Parcel, Unreadable, unwrap, wrap
from refprotofl.engines.flower.routes import Answered, Route

ROUTE = Route("a" * 32, 1, 2, 3, 0, "train", True, "base", ["kept"])


@pytest.mark.parametrize("size", [0, 10, parcels.WHOLE, parcels.WHOLE + 1])
def test_a_parcel_comes_back_as_it_was(size: int) -> None:
    parcel = Parcel({"round": 3, "keeps": True, "verb": "train"}, bytes(size))
    assert unwrap(wrap(parcel)) == parcel


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
    ],
)
def test_anything_else_is_unreadable(content: RecordDict) -> None:
    with pytest.raises(Unreadable):
        unwrap(content)


def test_a_route_is_read_back_and_its_key_does_not_depend_on_the_attempt() -> None:
    assert Route.read(ROUTE.header()) == ROUTE
    again = Route.read({**ROUTE.header(), "attempt": 5})
    assert again.key(b"x") == ROUTE.key(b"x") != ROUTE.key(b"y")
    assert Route.read({**ROUTE.header(), "base": "other"}).key(b"x") != ROUTE.key(b"x")


@pytest.mark.parametrize("changed", [{"round": "2"}, {"client": None}, {"keeps": 1}, {"retain": "kept"}])
def test_a_route_that_is_none_is_unreadable(changed: dict[str, object]) -> None:
    with pytest.raises(Unreadable):
        Route.read({**ROUTE.header(), **changed})


def test_an_answer_of_another_phase_is_recognised() -> None:
    answer = Answered.to(ROUTE, state="new")
    assert Answered.read(answer.header()).belongs_to(ROUTE)
    for name, value in {"run": "b", "client": 0, "round": 1, "phase": 2}.items():
        assert not Answered.read({**answer.header(), name: value}).belongs_to(ROUTE)
    assert Answered.read({**answer.header(), "code": "made up"}).code == "failed"
