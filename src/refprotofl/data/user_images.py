"""Bringing a user's image arrays into the one form: uint8, channels first."""

import numpy as np
from numpy.typing import NDArray

from refprotofl.core.errors import DataError
from refprotofl.data.dataset import Images

RULE = (
    "Images are (N, height, width), (N, height, width, channels) or (N, channels, height, width), with 1 or 3 channels"
)
EIGHT_BITS = (
    "Images are held in 8 bits: scale them to whole numbers 0..255, by their range (4095, 65535, …), "
    "which only you know"
)
PART = 4096  # images that are converted at a time


def bring_to_uint8(
    train: NDArray[np.generic], test: NDArray[np.generic], origin: str
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], tuple[str, ...]]:
    """Both splits as uint8, scaled alike, and a sentence if they lose something by it.

    Whole numbers, of a float type too, are taken as 0..255. Floats that are none must lie in 0..1; what they have
    beyond 8 bits is rounded off, and told.
    """
    _check_types(train, test, origin)
    low = min(float(train.min()), float(test.min()))
    high = max(float(train.max()), float(test.max()))
    if not (low >= 0 and high <= 255):  # so written, NaN is refused too
        undo = "Undo any normalisation before saving: it is done here" if train.dtype.kind == "f" else EIGHT_BITS
        raise DataError(
            f"{origin}: pixel values run from {low:g} to {high:g}; they must lie in 0..255, "
            f"or as floats in 0..1. {undo}."
        )
    unit_floats = train.dtype.kind == "f" and high <= 1
    black_and_white = train.dtype.kind == test.dtype.kind == "b"
    scale = 255.0 if unit_floats or black_and_white else 1.0
    (train_pixels, exact), (test_pixels, test_exact) = _scaled(train, scale), _scaled(test, scale)
    if exact and test_exact:
        return train_pixels, test_pixels, ()
    if not unit_floats:
        raise DataError(
            f"{origin}: pixel values are fractions and run from {low:g} to {high:g}. Floats must lie in 0..1, or be "
            "whole numbers in 0..255."
        )
    note = f"{origin}: images have more precision than the 8 bits they are held in; they were rounded to 1/255."
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
    """As uint8, and whether nothing was lost but the float type's own rounding."""
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


def channels_first(images: NDArray[np.uint8], split: str, origin: str) -> Images:
    """(N, channels, height, width); where both readings fit, channels are taken to come first."""
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    elif images.ndim != 4 or images.shape[1] not in (1, 3):
        raise DataError(f"{origin}: the {split} images have shape {images.shape}. {RULE}.")
    return np.ascontiguousarray(images)
