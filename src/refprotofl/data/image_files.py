"""Image files as arrays of 8 bits per channel, grey or RGB, in their displayed orientation."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from refprotofl.core import DataError, size
from refprotofl.data.array_files import machine_memory
from refprotofl.data.dataset import Images
from refprotofl.data.reading import AS_IT_IS, Sizing
from refprotofl.inputs.image import EIGHT_BITS

if TYPE_CHECKING:
    from PIL import Image


MOST_PIXELS = 1 << 26  # per image, 8192 x 8192: 200 MB in RGB


def is_image(path: Path) -> bool:
    """Return True for the file name of an image that is not hidden."""
    from PIL import Image

    return path.suffix.lower() in Image.registered_extensions() and not path.name.startswith(".")


def read_images(files: list[Path], sizing: Sizing = AS_IT_IS) -> Images:
    """Read images (N, channels, height, width): grey if all files are, else RGB."""
    pictures: list[np.ndarray] = []  # (height, width) or (height, width, 3) each
    for file in files:
        pictures.append(_read(file, sizing))
        if pictures[-1].shape[:2] != pictures[0].shape[:2]:
            raise DataError(
                f"Images differ in size: {files[0]} is {_size(pictures[0])}, {file} is {_size(pictures[-1])}. "
                "Resize them all to one size, as resize = 32 does."
            )
        if len(pictures) == 1:
            _check_memory(pictures[0], files)
    if all(picture.ndim == 2 for picture in pictures):
        return np.stack(pictures)[:, None]
    coloured = np.empty((len(pictures), 3, *pictures[0].shape[:2]), np.uint8)
    for number, picture in enumerate(pictures):
        coloured[number] = picture if picture.ndim == 2 else picture.transpose(2, 0, 1)
    return coloured


def _check_memory(first: np.ndarray, files: list[Path]) -> None:
    """Raise DataError if the images do not fit into memory, before hours are spent on reading."""
    needed, memory = 2 * first.size * len(files), machine_memory()  # as pictures and as one array
    if memory is not None and needed > memory:
        raise DataError(
            f"{len(files):,} images as large as {files[0]} ({_size(first)}) take {size(needed)}, "
            "more than the memory of this machine: set resize to a smaller side."
        )


def _read(file: Path, sizing: Sizing) -> np.ndarray:
    from PIL import Image, ImageOps

    try:
        with pixel_limit(), Image.open(file) as opened:
            if _loses_bits(opened):
                raise DataError(f"{file} has 16 bits per channel. {EIGHT_BITS}.")
            image = ImageOps.exif_transpose(opened)  # as it is displayed, not as the camera was held
            return np.asarray(sizing.fit(in_8_bits(image, str(file)), str(file)))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{file} cannot be read as an image ({error}): replace or remove it.") from None


@contextmanager
def pixel_limit() -> Iterator[None]:
    """Make Pillow refuse images that take hundreds of megabytes, however small their files are."""
    from PIL import Image

    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = MOST_PIXELS // 2  # it warns above this, and refuses above twice this
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _loses_bits(opened: Any) -> bool:
    """Return True for colours of 16 bits, of which Pillow would silently drop half."""
    if opened.mode.startswith("I"):
        return False  # grey ones keep their values
    decoders = [tile[3] for tile in getattr(opened, "tile", [])]
    if opened.format == "PPM":
        return any(isinstance(arguments, tuple) and arguments[-1] > 255 for arguments in decoders)
    return any(";16" in str(arguments) for arguments in decoders)


def in_8_bits(image: "Image.Image", origin: str) -> "Image.Image":
    """Return an image as grey or RGB; values that 8 bits cannot hold are refused, never clipped."""
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image)
        if not (values.min() >= 0 and values.max() <= 255 and (values == np.rint(values)).all()):
            raise DataError(f"{origin} has values from {values.min():g} to {values.max():g}. {EIGHT_BITS}.")
        return Image.fromarray(values.astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")


def _size(picture: np.ndarray) -> str:
    return f"{picture.shape[1]} x {picture.shape[0]}"
