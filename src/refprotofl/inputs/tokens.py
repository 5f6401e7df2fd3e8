"""Tokens: texts as numbers of characters or words.

A sample is a row of int64 (T,): token numbers, then padding. 0 is padding, 1 a token outside of the vocabulary, and
2 + i is entry i of the vocabulary, so a text's length is its count of numbers above 0.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from refprotofl.core import DataError, counted
from refprotofl.core.inputs import Array, BadSample, Converted, Facts, InputKind, Shape, Summary, TextCode

PADDING, UNKNOWN, FIRST = 0, 1, 2
MOST_TOKENS = 1 << 16  # in a vocabulary
MOST_LENGTH = 1024  # of a text: attention takes memory by its square
LONGEST = 256  # tokens of a text unless the experiment sets data.length
FORM = "Tokens are texts (N,), or whole numbers (N, tokens) above 0 with 0 as padding at the end."
UNKNOWN_NAME = "\N{REPLACEMENT CHARACTER}"  # of an unknown token in a file
_WORD = re.compile(r"\w+(?:['\u2019]\w+)*|[^\w\s]")


class Tokens(InputKind):
    dtype = "int64"
    noun, plural = "text", "texts"
    axes = ("tokens",)
    backbone = "transformer"
    values = "2 and up for the entries of the vocabulary, 1 for other tokens, 0 for padding at the end"
    normalised = False

    def check_shape(self, shape: Shape) -> None:
        super().check_shape(shape)
        if shape[0] > MOST_LENGTH:
            raise ValueError(f"has {shape[0]:,} tokens in a text, more than {MOST_LENGTH:,}: set data.length")

    def check_facts(self, shape: Shape, mean: Sequence[float], std: Sequence[float], vocabulary: Sequence[str]) -> None:
        super().check_facts(shape, mean, std, ())
        if not vocabulary or len(vocabulary) > MOST_TOKENS or len(set(vocabulary)) < len(vocabulary):
            raise ValueError(f"needs a vocabulary of different tokens, at most {MOST_TOKENS:,}")

    def describe(self, shape: Shape) -> str:
        return f"up to {counted(shape[0], 'token')}"

    def convert(self, train: Array, test: Array, origin: str, code: TextCode, vocabulary: Sequence[str]) -> Converted:
        if (train.dtype.kind in "US") != (test.dtype.kind in "US"):
            raise DataError(f"{origin}: train inputs are {train.dtype} and test inputs {test.dtype}; use one type.")
        if train.dtype.kind in "US":
            return _from_texts(train, test, origin, code)
        known = tuple(vocabulary) or _numbers(origin, train, test)
        first = _from_numbers(train, "train", origin, len(known))
        second = _from_numbers(test, "test", origin, len(known))
        length = code.length or max(first.shape[1], second.shape[1])
        return Converted(_width(first, length), _width(second, length), vocabulary=known)

    def summarise(self, inputs: Array, vocabulary: Sequence[str], most: int) -> Summary:
        """Return the most common tokens and how often each occurs."""
        counts = np.bincount(inputs.ravel(), minlength=FIRST + len(vocabulary))[FIRST:]
        chosen = [row for row in np.argsort(-counts, kind="stable")[:most].tolist() if counts[row]]
        return {"tokens": json.dumps([vocabulary[row] for row in chosen]), "counts": counts[chosen].astype(np.int64)}

    def check_summary(self, summary: Summary, shape: Shape, most_samples: int) -> None:
        tokens, counts = _read_list(summary.get("tokens")), summary.get("counts")
        if not isinstance(counts, np.ndarray) or counts.dtype != np.int64 or counts.shape != (len(tokens),):
            raise ValueError("counts is not a whole number for each token")
        if (
            len(tokens) > MOST_TOKENS
            or len(set(tokens)) < len(tokens)
            or any(not 0 < len(one) <= 100 for one in tokens)
        ):
            raise ValueError("tokens is not a list of different tokens of up to 100 characters")
        if (counts < 1).any() or int(counts.sum()) > most_samples * shape[0]:
            raise ValueError("counts has more tokens than any client, or none of one that it lists")

    def outliers(self, summaries: Sequence[Summary], limit: float) -> list[int]:
        return []  # a client has no more than one vote for a token

    def agree(self, summaries: Sequence[Summary], shape: Shape, most: int) -> Facts:
        """Return the vocabulary: the tokens that most clients have, then by their mean share of a client's tokens.

        A token of one client alone is left out, as all clients would learn it.
        """
        votes, shares = Counter[str](), Counter[str]()
        for summary in summaries:
            counts = np.asarray(summary["counts"])
            for token, count in zip(_read_list(summary["tokens"]), counts.tolist(), strict=True):
                votes[token] += 1
                shares[token] += count / int(counts.sum())
        known = [token for token in votes if votes[token] > 1 or len(summaries) == 1]
        known.sort(key=lambda token: (-votes[token], -shares[token], token))
        return Facts(vocabulary=tuple(sorted(known[:most])))

    def fit(self, inputs: Array, vocabulary: Sequence[str], shape: Shape, known: Sequence[str]) -> Array:
        """Return tokens (N, T) under another vocabulary and length."""
        return _width(recode(inputs, vocabulary, known), shape[0])

    def stored(self, inputs: Array, vocabulary: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
        """Return token numbers from 1, in which unknown tokens are an entry of their own after the vocabulary."""
        unknown = inputs == UNKNOWN
        names = (*vocabulary, UNKNOWN_NAME) if unknown.any() else tuple(vocabulary)
        return np.where(unknown, len(vocabulary) + 1, np.maximum(inputs - 1, PADDING)), names

    def example(self, shape: Shape, count: int, draw: np.random.Generator, vocabulary: Sequence[str]) -> Array:
        made = draw.integers(UNKNOWN, FIRST + len(vocabulary), (count, *shape))
        lengths = draw.integers(1, shape[0] + 1, count)
        return np.where(np.arange(shape[0]) < lengths[:, None], made, PADDING)


def _read_list(text: object) -> list[str]:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("tokens is not a list of texts")
    return found


def split_text(text: str, unit: str) -> list[str]:
    """Return the characters of a text, or its words in lower case and its marks."""
    return list(text) if unit == "characters" else _WORD.findall(text.lower())


def recode(inputs: Array, vocabulary: Sequence[str], known: Sequence[str]) -> Array:
    """Return tokens (N, T) as numbers of another vocabulary; a token that it lacks is unknown."""
    if tuple(vocabulary) == tuple(known):
        return inputs
    numbers = {token: FIRST + number for number, token in enumerate(known)}
    table = np.array([PADDING, UNKNOWN, *(numbers.get(token, UNKNOWN) for token in vocabulary)], np.int64)
    return np.asarray(table[inputs])


def _from_texts(train: Array, test: Array, origin: str, code: TextCode) -> Converted:
    first, second = _split_all(train, "train", origin, code.unit), _split_all(test, "test", origin, code.unit)
    vocabulary = tuple(sorted({token for tokens in (*first, *second) for token in tokens}))
    numbers = {token: FIRST + number for number, token in enumerate(vocabulary)}
    length = code.length or min(max(map(len, first)), LONGEST)
    cut = sum(len(tokens) > length for tokens in (*first, *second))
    notes = (f"{origin}: {counted(cut, 'text')} cut to the first {length} tokens (data.length).",) if cut else ()
    return Converted(_rows(first, numbers, length), _rows(second, numbers, length), notes, vocabulary)


def _split_all(texts: Array, split: str, origin: str, unit: str) -> list[list[str]]:
    if texts.dtype.kind == "S":
        texts = np.char.decode(texts, "utf-8")
    if texts.ndim != 1 or not len(texts):
        raise DataError(f"{origin}: the {split} texts have shape {texts.shape}. {FORM}")
    found = [split_text(text, unit) for text in texts.tolist()]
    empty = next((row for row, tokens in enumerate(found) if not tokens), None)
    if empty is not None:
        raise BadSample(origin, split, empty, "is an empty text: remove it or fill in its text.")
    return found


def _rows(texts: Sequence[Sequence[str]], numbers: dict[str, int], length: int) -> Array:
    rows = np.zeros((len(texts), length), np.int64)
    for row, tokens in zip(rows, texts, strict=True):
        kept = tokens[:length]
        row[: len(kept)] = [numbers[token] for token in kept]
    return rows


def _from_numbers(array: Array, split: str, origin: str, known: int) -> Array:
    """Return token numbers (N, T) shifted by one, as 1 is kept for unknown tokens."""
    if array.dtype.kind not in "ui" or array.ndim != 2 or not array.size:
        raise DataError(f"{origin}: the {split} tokens have type {array.dtype} and shape {array.shape}. {FORM}")
    for wrong, reason in (
        (array < 0, "a number below 0"),
        (array > known, f"a number above {known}, which is the size of the vocabulary"),
        ((array[:, 1:] != 0) & (array[:, :-1] == 0), "padding before a token"),
        (array[:, :1] == 0, "no tokens"),
    ):
        if wrong.any():
            raise BadSample(origin, split, int(wrong.any(axis=1).argmax()), f"has {reason}. {FORM}")
    numbers = array.astype(np.int64)
    return np.where(numbers > 0, numbers + FIRST - 1, PADDING)


def _numbers(origin: str, *splits: Array) -> tuple[str, ...]:
    """Return the numbers 1..V as the names of tokens that have none."""
    most = max((int(one.max()) for one in splits if one.size and one.dtype.kind in "ui"), default=0)
    if most > MOST_TOKENS:
        raise DataError(f"{origin} has the token {most:,}: number the tokens from 1, up to {MOST_TOKENS:,}.")
    return tuple(str(number) for number in range(1, most + 1))


def _width(rows: Array, length: int) -> Array:
    """Return rows (N, T) cut or padded to this length."""
    kept = rows[:, :length]
    return np.pad(kept, ((0, 0), (0, length - kept.shape[1]))) if kept.shape[1] < length else np.ascontiguousarray(kept)
