"""Arrays of each kind become samples, and what is wrong with them is reported with its row."""

from typing import Any

import numpy as np
import pytest

from refprotofl.core import DataError
from refprotofl.core.inputs import TextCode
from refprotofl.data.arrays import dataset_from_arrays
from refprotofl.data.dataset import Dataset
from refprotofl.data.reading import Reading


def made(reading: Reading | None = None, **arrays: Any) -> Dataset:
    given = {"y_train": np.array([0, 1, 0]), "y_test": np.array([1])} | arrays
    return dataset_from_arrays(given, "here", reading=reading or Reading())


def test_a_kind_follows_from_the_array_or_is_named() -> None:
    vectors = made(x_train=np.ones((3, 4)), x_test=np.ones((1, 4)))
    assert (vectors.kind, vectors.shape, vectors.train_inputs.dtype.name) == ("vector", (4,), "float32")
    series = made(Reading(kind="series"), x_train=np.ones((3, 2, 8)), x_test=np.ones((1, 2, 8)))
    assert (series.kind, series.shape, series.test_inputs.dtype.name) == ("series", (2, 8), "float32")
    images = made(x_train=np.ones((3, 2, 8), np.uint8), x_test=np.ones((1, 2, 8), np.uint8))
    assert (images.kind, images.shape, images.train_inputs.dtype.name) == ("image", (1, 2, 8), "uint8")


def test_texts_become_numbers_of_a_vocabulary_and_padding() -> None:
    texts = made(x_train=np.array(["ab", "ba", "b"]), x_test=np.array(["aac"]))
    assert (texts.kind, texts.vocabulary, texts.train_inputs.dtype.name) == ("tokens", ("a", "b", "c"), "int64")
    assert texts.train_inputs.tolist() == [[2, 3], [3, 2], [3, 0]]
    assert texts.test_inputs.tolist() == [[2, 2]]  # cut to the longest training text
    assert "1 text cut to the first 2 tokens" in texts.notes[0]
    words = made(Reading(code=TextCode("words", 3)), x_train=np.array(["It's a", "a, b", "B"]), x_test=np.array(["b"]))
    assert words.vocabulary == (",", "a", "b", "it's")
    assert words.train_inputs.tolist() == [[5, 3, 0], [3, 2, 4], [4, 0, 0]]


def test_token_numbers_keep_their_order_and_0_is_padding() -> None:
    numbers = np.array([[1, 2], [3, 0], [2, 2]])
    found = made(Reading(kind="tokens"), x_train=numbers, x_test=numbers[:1], vocabulary=np.array(["x", "y", "z"]))
    assert found.vocabulary == ("x", "y", "z")
    assert found.train_inputs.tolist() == [[2, 3], [4, 0], [3, 3]]


@pytest.mark.parametrize(
    ("kind", "arrays", "complaint"),
    [
        (
            "auto",
            {"x_train": np.array([[1.0], [np.nan], [2.0]]), "x_test": np.ones((1, 1))},
            "row 1 has a missing",
        ),
        ("auto", {"x_train": np.array([[1.0], [np.inf], [2.0]]), "x_test": np.ones((1, 1))}, "train row 1 has an inf"),
        ("auto", {"x_train": np.ones((3, 2)), "x_test": np.ones((1, 3))}, "are 2 features but test vectors 3 features"),
        ("series", {"x_train": np.ones((3, 2)), "x_test": np.ones((1, 2))}, r"Series are \(N, channels, steps\)"),
        ("auto", {"x_train": np.array(["a", "", "b"]), "x_test": np.array(["a"])}, "train row 1 is an empty text"),
        ("tokens", {"x_train": np.array([[1], [2], [0]]), "x_test": np.array([[1]])}, "train row 2 has no tokens"),
        ("tokens", {"x_train": np.array([[1, 1], [0, 2], [1, 0]]), "x_test": np.array([[1, 1]])}, "row 1 has padding"),
        (
            "tokens",
            {"x_train": np.array([[1], [3], [1]]), "x_test": np.array([[1]]), "vocabulary": np.array(["a", "b"])},
            "train row 1 has a number above 2, which is the size of the vocabulary",
        ),
    ],
)
def test_what_is_wrong_is_reported_with_its_row(kind: str, arrays: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        made(Reading(kind=kind), **arrays)
