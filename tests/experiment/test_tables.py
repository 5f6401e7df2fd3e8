"""Which keys of a table are in its plain form, and with it in hashes and files."""

from typing import Literal

import pytest
from pydantic import Field

from refprotofl.experiment.keys import Table, allowed, key, nearest
from refprotofl.experiment.keys import keys as keys_of


class Inner(Table):
    width: int = key(2, enters="changed")


class Outer(Table):
    old: int = 1
    later: float = key(0.5, "an added key", enters="changed")
    how: str = key("fast", enters="never")
    where: str = key("here", enters="carried")
    inner: Inner = Field(default_factory=Inner)
    kind: Literal["one", "two", "three"] = key("one", also=("sort", "type"))
    on: bool = key(True, "whether it is")


@pytest.mark.parametrize(
    ("values", "plain"),
    [
        ({}, {}),
        ({"later": 0.5, "how": "slow", "where": "there"}, {}),
        ({"later": 0.75}, {"later": 0.75}),
        ({"inner": {"width": 2}}, {}),
        ({"inner": {"width": 3}}, {"inner": {"width": 3}}),
    ],
)
def test_a_key_that_came_later_enters_when_it_is_changed_and_one_on_how_never(
    values: dict[str, object], plain: dict[str, object]
) -> None:
    assert Outer.model_validate(values).plain() == {"old": 1, "kind": "one", "on": True} | plain


def test_what_a_key_takes_follows_from_its_type() -> None:
    known = keys_of(Outer)
    assert allowed(known["kind"]) == "one, two or three"
    assert allowed(known["on"]) == "on or off: whether it is"
    assert allowed(known["later"]) == "an added key"


def test_other_words_lead_to_the_key() -> None:
    assert nearest("type", keys_of(Outer)) == "kind"
    assert nearest("outer.latr", keys_of(Outer)) == "later"
