"""Bringing a user's image arrays into the one form: uint8, channels first."""

import numpy as np
from numpy.typing import NDArray

from refprotofl.data.dataset import Images
from refprotofl.errors import DataError

RULE = (
    "Images are (N, height, width), (N, height, width, channels) or (N, channels, height, width), with 1 or 3 channels"
)


def bring_to_uint8(
    train: NDArray[np.generic], test: NDArray[np.generic], origin: str
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Both splits as uint8, scaled alike.

    Whole numbers are taken as 0..255. Floats are taken as 0..1 if no value of either split is above 1,
    else as 0..255 too.
    """
    for split, array in (("train", train), ("test", test)):
        if array.dtype.kind not in "uifb":
            raise DataError(f"{origin}: the {split} images have type {array.dtype}; use uint8, or float in 0..1.")
        if array.size == 0:
            raise DataError(f"{origin}: there are no {split} images (shape {array.shape}).")
    if (train.dtype.kind == "f") != (test.dtype.kind == "f"):
        raise DataError(
            f"{origin}: train images are {train.dtype} and test images {test.dtype}; use one type for both."
        )
    low = min(float(train.min()), float(test.min()))
    high = max(float(train.max()), float(test.max()))
    if not (low >= 0 and high <= 255):  # so written, NaN is refused too
        raise DataError(
            f"{origin}: pixel values run from {low:g} to {high:g}; they must lie in 0..255, "
            "or as floats in 0..1. Undo any normalisation before saving: it is done here."
        )
    unit_floats = train.dtype.kind == "f" and high <= 1
    black_and_white = train.dtype.kind == test.dtype.kind == "b"
    scale = 255.0 if unit_floats or black_and_white else 1.0
    return _scaled(train, scale), _scaled(test, scale)


def _scaled(array: NDArray[np.generic], scale: float) -> NDArray[np.uint8]:
    if array.dtype.kind == "f" or scale != 1:
        return np.rint(array.astype(np.float64) * scale).astype(np.uint8)
    return array.astype(np.uint8)


def channels_first(images: NDArray[np.uint8], split: str, origin: str) -> Images:
    """(N, channels, height, width); where both readings fit, channels are taken to come first."""
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.transpose(0, 3, 1, 2)
    elif images.ndim != 4 or images.shape[1] not in (1, 3):
        raise DataError(f"{origin}: the {split} images have shape {images.shape}. {RULE}.")
    return np.ascontiguousarray(images)
