import pytest

from refprotofl.basics.units import counted


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (1, "round", "1 round"),
        (0, "round", "0 rounds"),
        (1200, "training image", "1,200 training images"),
        (2, "class", "2 classes"),
        (2, "query", "2 queries"),
    ],
)
def test_one_is_not_many(number: int, noun: str, words: str) -> None:
    assert counted(number, noun) == words
