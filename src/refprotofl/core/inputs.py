"""Kinds of inputs: what a sample is (an image, a vector, a series, a text), and how arrays become samples of a kind.

A kind is one module of `refprotofl.inputs` without torch, and one of `refprotofl.models.inputs` with its normalisation
and backbones. All other code asks the kind.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from refprotofl.core.errors import DataError
from refprotofl.core.moments import PART, as_moments, far_off, moments, pooled, read_moments

Array = NDArray[Any]  # (N, …)
Shape = tuple[int, ...]  # of one sample
Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # means and deviations by feature

MOST_VALUES = 1 << 24  # per sample: an image of 2,360 x 2,360 pixels in RGB


@dataclass(frozen=True)
class TextCode:
    """The split of texts into tokens: their unit, and the tokens of a sample, 0 for those of the longest text."""

    unit: str = "characters"  # or words
    length: int = 0


@dataclass(frozen=True, eq=False)
class Converted:
    """Both splits as samples of one kind."""

    train: Array
    test: Array
    notes: tuple[str, ...] = ()  # changes to the data, for people
    vocabulary: tuple[str, ...] = ()  # of tokens


Summary = dict[str, Array | str]  # what a client sends in the first exchange


@dataclass(frozen=True)
class Facts:
    """The facts about the data that an experiment records in addition to their shape."""

    mean: tuple[float, ...] = ()  # by feature
    std: tuple[float, ...] = ()
    vocabulary: tuple[str, ...] = ()


class InputKind(ABC):
    """A kind of input. Its name is that of its module."""

    @property
    def name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    dtype: ClassVar[str]  # as numpy and torch call it
    noun: ClassVar[str]
    plural: ClassVar[str]
    axes: ClassVar[tuple[str, ...]]  # of one sample
    backbone: ClassVar[str]  # that is suggested
    values: ClassVar[str]  # of a sample, for model cards
    field: ClassVar[str] = "inputs"  # of samples in messages
    exchanges: ClassVar[bool] = False  # clients send sums for the statistics unless the experiment says otherwise
    published: ClassVar[bool] = False  # statistics are those of the data set, not of its clients
    normalised: ClassVar[bool] = True
    remedy: ClassVar[str] = "Bring them to one shape."  # for data of another shape than the experiment's

    def check_shape(self, shape: Shape) -> None:
        """Raise ValueError for a shape that no sample of this kind has, or for which no model is built."""
        if len(shape) != len(self.axes) or min(shape) < 1:
            raise ValueError(f"has shape {list(shape)}; of {self.plural} it is {', '.join(self.axes)}, each 1 or more")
        if math.prod(shape) > MOST_VALUES:
            raise ValueError(f"has {math.prod(shape):,} values in a sample, more than {MOST_VALUES:,}")

    def check_facts(self, shape: Shape, mean: Sequence[float], std: Sequence[float], vocabulary: Sequence[str]) -> None:
        """Raise ValueError for facts that do not fit the shape, as of a received experiment."""
        number = self.features(shape)
        if not len(mean) == len(std) == number or min(std, default=1) <= 0:
            raise ValueError(f"needs a mean, and a std above 0, for each of {number} {self.axes[0]}")
        if vocabulary and self.normalised:
            raise ValueError(f"has a vocabulary, but {self.plural} are not made of tokens")

    def features(self, shape: Shape) -> int:
        """Return the number of means and deviations that samples are normalised with."""
        return shape[0] if self.normalised else 0

    @abstractmethod
    def describe(self, shape: Shape) -> str:
        """Return the size of a sample in words."""

    @abstractmethod
    def convert(self, train: Array, test: Array, origin: str, code: TextCode, vocabulary: Sequence[str]) -> Converted:
        """Return both splits in this kind's form; raise DataError, which begins with `origin`, if they have another."""

    def statistics(self, inputs: Array) -> Statistics:
        """Return the means and standard deviations that samples are normalised with."""
        return ((), ()) if not self.normalised else moments(inputs).statistics()

    def summarise(self, inputs: Array, vocabulary: Sequence[str], most: int) -> Summary:
        """Return what a client with these samples sends in the first exchange; `most` bounds a vocabulary."""
        found = moments(inputs)
        return {"counts": found.counts, "means": found.means, "squares": found.squares}

    def check_summary(self, summary: Summary, shape: Shape, most_samples: int) -> None:
        """Raise ValueError for a summary that no client with at most so many samples can have."""
        read_moments(summary, shape[0], most_samples * math.prod(shape[1:]))

    def outliers(self, summaries: Sequence[Summary], limit: float) -> list[int]:
        """Return the positions of summaries that are out of proportion to the others; `limit` times is too much."""
        return far_off([as_moments(one) for one in summaries], limit)

    def agree(self, summaries: Sequence[Summary], shape: Shape, most: int) -> Facts:
        """Return the facts about all samples from summaries that were checked, in their order."""
        mean, std = pooled(map(as_moments, summaries), shape[0]).statistics()
        return Facts(mean, std)

    def fit(self, inputs: Array, vocabulary: Sequence[str], shape: Shape, known: Sequence[str]) -> Array:
        """Return inputs under an experiment's shape and vocabulary, where that is a matter of form."""
        return inputs

    def stored(self, inputs: Array, vocabulary: Sequence[str]) -> tuple[Array, tuple[str, ...]]:
        """Return inputs and vocabulary in a form that `convert` takes."""
        return inputs, tuple(vocabulary)

    def example(self, shape: Shape, count: int, draw: np.random.Generator, vocabulary: Sequence[str]) -> Array:
        """Return random samples (count, …)."""
        return draw.standard_normal((count, *shape)).astype(self.dtype)


class BadSample(DataError):
    """A sample that cannot be used. It is named by its row in the split, or in the source that was split."""

    def __init__(self, origin: str, split: str, row: int, reason: str) -> None:
        super().__init__(f"{origin}: {split} row {row} {reason}")
        self.origin, self.split, self.row, self.reason = origin, split, row, reason

    def in_source(self, rows: NDArray[np.int64]) -> DataError:
        """Return the same for a source in which the rows (n,) of the split have these positions."""
        return DataError(f"{self.origin}: sample {rows[self.row]} {self.reason}")


def check_numbers(array: Array, axes: int, split: str, origin: str, form: str) -> Array:
    """Return numbers as float32 (N, …) with `axes` axes a sample; NaN marks a missing value."""
    if array.dtype.kind not in "uifb":
        raise DataError(f"{origin}: the {split} inputs have type {array.dtype}; they must be numbers. {form}")
    if not array.size:
        raise DataError(f"{origin}: there are no {split} inputs (shape {array.shape}).")
    if array.ndim != axes + 1:
        raise DataError(f"{origin}: the {split} inputs have shape {array.shape}. {form}")
    fits = array.dtype == np.float32 and array.flags.c_contiguous  # a large table is not copied
    narrow = array if fits else np.empty(array.shape, np.float32)
    for start in range(0, len(array), PART):
        part = narrow[start : start + PART]
        if not fits:
            with np.errstate(over="ignore"):  # reported below
                part[:] = array[start : start + PART]
        infinite = np.isinf(part).any(axis=tuple(range(1, part.ndim)))
        if infinite.any():
            row = start + int(infinite.argmax())
            raise BadSample(origin, split, row, "has an infinite value, or one beyond float32.")
    return narrow


def missing_rows(inputs: Array) -> NDArray[np.int64]:
    """Return the rows (n,) that have a missing value."""
    if inputs.dtype.kind != "f":
        return np.zeros(0, np.int64)
    axes = tuple(range(1, inputs.ndim))
    parts = (inputs[start : start + PART] for start in range(0, len(inputs), PART))
    return np.flatnonzero(np.concatenate([np.zeros(0, bool), *(np.isnan(part).any(axis=axes) for part in parts)]))


def fill_gaps(inputs: Array, means: Sequence[float]) -> Array:
    """Return inputs (N, features, …) with the mean of the feature for missing values: no message holds NaN."""
    if inputs.dtype.kind != "f" or not np.isnan(inputs).any():
        return inputs
    filler = np.array(means, inputs.dtype).reshape(-1, *(1,) * (inputs.ndim - 2))
    return np.where(np.isnan(inputs), filler, inputs)
