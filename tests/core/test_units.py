import pytest

from refprotofl.core.units import counted, read_whole


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


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1)])
def test_digits_are_a_number(text: str, number: int) -> None:
    assert read_whole(text) == number


@pytest.mark.parametrize("text", ["", "-1", "1.0", " 1", "1e3", "٣", "²", "9" * 19, "9" * 5000])
def test_anything_else_is_none(text: str) -> None:
    """Digits of other scripts, and more digits than Python reads, among them."""
    assert read_whole(text) is None
