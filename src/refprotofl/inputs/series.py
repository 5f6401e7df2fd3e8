"""Series: a number for each channel and step, as of sensors."""

from collections.abc import Sequence

from refprotofl.core import counted
from refprotofl.core.inputs import Array, Converted, InputKind, Shape, TextCode, check_numbers

FORM = "Series are (N, channels, steps), all of one length."
MOST_CHANNELS = 1 << 16


class Series(InputKind):
    dtype = "float32"
    noun, plural = "series", "series"
    axes = ("channels", "steps")
    backbone = "cnn"
    values = "in the units of the data; NaN for a missing one"
    exchanges = True

    def check_shape(self, shape: Shape) -> None:
        super().check_shape(shape)
        if shape[0] > MOST_CHANNELS:
            raise ValueError(f"has {shape[0]:,} channels, more than {MOST_CHANNELS:,}")

    def describe(self, shape: Shape) -> str:
        return f"{counted(shape[1], 'step')} of {counted(shape[0], 'channel')}"

    def convert(self, train: Array, test: Array, origin: str, code: TextCode, vocabulary: Sequence[str]) -> Converted:
        first, second = check_numbers(train, 2, "train", origin, FORM), check_numbers(test, 2, "test", origin, FORM)
        return Converted(first, second)
