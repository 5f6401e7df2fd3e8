"""Vectors: a number for each feature, as in tables."""

from collections.abc import Sequence

from refprotofl.core import counted
from refprotofl.core.inputs import Array, Converted, InputKind, Shape, TextCode, check_numbers

FORM = "Vectors are (N, features)."
MOST_FEATURES = 1 << 16  # each has a mean and a deviation in the experiment


class Vector(InputKind):
    dtype = "float32"
    noun, plural = "vector", "vectors"
    axes = ("features",)
    backbone = "mlp"
    values = "in the units of the data; NaN for a missing one"
    exchanges = True

    def check_shape(self, shape: Shape) -> None:
        super().check_shape(shape)
        if shape[0] > MOST_FEATURES:
            raise ValueError(f"has {shape[0]:,} features, more than {MOST_FEATURES:,}")

    def describe(self, shape: Shape) -> str:
        return counted(shape[0], "feature")

    def convert(self, train: Array, test: Array, origin: str, code: TextCode, vocabulary: Sequence[str]) -> Converted:
        first, second = check_numbers(train, 1, "train", origin, FORM), check_numbers(test, 1, "test", origin, FORM)
        return Converted(first, second)
