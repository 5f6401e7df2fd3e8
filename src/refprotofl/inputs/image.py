"""Images: 8 bits for each channel and pixel."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from refprotofl.core import DataError, counted
from refprotofl.core.inputs import MOST_VALUES, Array, Converted, InputKind, Shape, Statistics, TextCode

RULE = (
    "Images are (N, height, width), (N, height, width, channels) or (N, channels, height, width), with 1 or 3 channels"
)
EIGHT_BITS = (
    "Images are stored in 8 bits: scale them to whole numbers 0..255, by their range (4095, 65535, …), "
    "which only you know"
)
NOT_PIXELS = (
    'Set data.kind = "series" for (N, channels, steps); images are saved before they are normalised, as 0..255 or as '
    "floats in 0..1"
)
PART = 4096  # images that are converted at a time


class Image(InputKind):
    dtype = "uint8"
    noun, plural = "image", "images"
    axes = ("channels", "height", "width")
    backbone = "cnn"
    values = "0..255"
    field = "images"  # its name since before there were other kinds: states have digests of messages
    published = True
    remedy = "Convert them to that size, or set resize in the experiment."

    def check_shape(self, shape: Shape) -> None:
        if math.prod(shape) > MOST_VALUES:
            raise ValueError(f"has {math.prod(shape):,} values an image, more than {MOST_VALUES:,}: resize the images")
        super().check_shape(shape)

    def check_facts(self, shape: Shape, mean: Sequence[float], std: Sequence[float], vocabulary: Sequence[str]) -> None:
        """Leave the statistics to those who use them: models are also built without data."""

    def describe(self, shape: Shape) -> str:
        channels, height, width = shape
        return f"{width} x {height} with {counted(channels, 'channel')}"

    def convert(self, train: Array, test: Array, origin: str, code: TextCode, vocabulary: Sequence[str]) -> Converted:
        train_pixels, test_pixels, notes = bring_to_uint8(train, test, origin)
        return Converted(
            channels_first(train_pixels, "train", origin), channels_first(test_pixels, "test", origin), notes
        )

    def statistics(self, inputs: Array) -> Statistics:
        return channel_statistics(inputs)

    def example(self, shape: Shape, count: int, draw: np.random.Generator, vocabulary: Sequence[str]) -> Array:
        return draw.integers(0, 256, (count, *shape), dtype=np.uint8)


def bring_to_uint8(
    train: NDArray[np.generic], test: NDArray[np.generic], origin: str
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], tuple[str, ...]]:
    """Return both splits as uint8, scaled alike, and a note if precision is lost.

    Whole numbers, also of a float type, are taken as 0..255. Other floats must be in 0..1; precision beyond 8 bits is
    rounded off and noted.
    """
    _check_types(train, test, origin)
    low = min(float(train.min()), float(test.min()))
    high = max(float(train.max()), float(test.max()))
    if not (low >= 0 and high <= 255):  # so written, NaN is refused too
        if train.dtype.kind == "f":
            raise DataError(
                f"{origin}: the values of x run from {low:g} to {high:g}, so they are no pixels. {NOT_PIXELS}."
            )
        raise DataError(f"{origin}: pixel values run from {low:g} to {high:g}; they must be in 0..255. {EIGHT_BITS}.")
    unit_floats = train.dtype.kind == "f" and high <= 1
    black_and_white = train.dtype.kind == test.dtype.kind == "b"
    scale = 255.0 if unit_floats or black_and_white else 1.0
    (train_pixels, exact), (test_pixels, test_exact) = _scaled(train, scale), _scaled(test, scale)
    if exact and test_exact:
        return train_pixels, test_pixels, ()
    if not unit_floats:
        raise DataError(
            f"{origin}: pixel values are fractions and run from {low:g} to {high:g}. Floats must be in 0..1, or be "
            'whole numbers in 0..255; series, (N, channels, steps), need data.kind = "series".'
        )
    note = f"{origin}: images have more precision than the 8 bits that they are stored in; they were rounded to 1/255."
    return train_pixels, test_pixels, (note,)


def _check_types(train: NDArray[np.generic], test: NDArray[np.generic], origin: str) -> None:
    for split, array in (("train", train), ("test", test)):
        if array.dtype.kind not in "uifb":
            raise DataError(f"{origin}: the {split} images have type {array.dtype}; use uint8, or float in 0..1.")
        if array.size == 0:
            raise DataError(f"{origin}: there are no {split} images (shape {array.shape}).")
    if (train.dtype.kind == "f") != (test.dtype.kind == "f"):
        raise DataError(
            f"{origin}: train images are {train.dtype} and test images {test.dtype}; use one type for both."
        )


def _scaled(array: NDArray[np.generic], scale: float) -> tuple[NDArray[np.uint8], bool]:
    """Return the array as uint8, and True if nothing was lost but the float type's own rounding."""
    if array.dtype.kind != "f" and scale == 1:
        return array.astype(np.uint8, copy=False), True
    pixels = np.empty(array.shape, np.uint8)
    own_rounding = 255 * float(np.finfo(np.dtype(array.dtype.str)).eps) if array.dtype.kind == "f" else 0.0
    exact = True
    for start in range(0, len(array), PART):
        values = array[start : start + PART].astype(np.float64) * scale
        whole = np.rint(values)
        exact = exact and bool(np.abs(values - whole).max() <= max(1e-3, own_rounding))
        pixels[start : start + PART] = whole
    return pixels, exact


def channels_first(images: NDArray[np.uint8], split: str, origin: str) -> NDArray[np.uint8]:
    """Return images (N, channels, height, width); where both layouts are possible, channels come first."""
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    elif images.ndim != 4 or images.shape[1] not in (1, 3):
        raise DataError(f"{origin}: the {split} images have shape {images.shape}. {RULE}.")
    return np.ascontiguousarray(images)


def channel_statistics(images: NDArray[np.uint8]) -> Statistics:
    """Return mean and standard deviation of each channel on the 0..1 scale."""
    means, stds = [], []
    for channel in range(images.shape[1]):
        # Counting the 256 values is exact and needs no float copy; in parts, because numpy counts in 8 bytes a value.
        parts = np.array_split(images[:, channel], 1 + len(images) // 4096)
        counts = np.sum([np.bincount(part.ravel(), minlength=256) for part in parts], axis=0)
        values = np.arange(256) / 255
        mean = float(counts @ values / counts.sum())
        variance = float(counts @ (values - mean) ** 2 / counts.sum())
        means.append(mean)
        # A constant channel has no deviation; 1 keeps it finite when it is divided by.
        stds.append(variance**0.5 if variance > 1e-12 else 1.0)
    return tuple(means), tuple(stds)
