"""A user's own data as image files in one folder a class, with train/ and test/ above them or not."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from refprotofl.basics.streams import stream
from refprotofl.data.dataset import Dataset, Images
from refprotofl.data.draws import stratified_split
from refprotofl.data.own_arrays import dataset_from_arrays
from refprotofl.errors import DataError

LAYOUT = "FOLDER/train/CLASS/*.png and FOLDER/test/CLASS/*.png, or FOLDER/CLASS/*.png"


def load_image_folder(folder: Path, seed: int) -> Dataset:
    """Class folders; without train/ and test/ every class is split 80/20 by the seed."""
    if (folder / "train").is_dir() != (folder / "test").is_dir():
        there, lacking = ("train", "test") if (folder / "train").is_dir() else ("test", "train")
        raise DataError(f"{folder} has a folder {there} but no folder {lacking}. Allowed are: {LAYOUT}.")
    if (folder / "train").is_dir():
        train, test = list_images(folder / "train"), list_images(folder / "test")
    else:
        train, test = _split(list_images(folder), seed, folder)
    images = read_images([file for file, _ in train + test])
    arrays = {
        "x_train": images[: len(train)],
        "x_test": images[len(train) :],
        "y_train": np.array([name for _, name in train]),
        "y_test": np.array([name for _, name in test]),
    }
    return dataset_from_arrays(arrays, str(folder))


def list_images(folder: Path) -> list[tuple[Path, str]]:
    """(file, class) of every image, sorted, so that the order is the same on every machine."""
    found = []
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not classes:
        raise DataError(f"{folder} is empty or has no class folders. Allowed are: {LAYOUT}.")
    for class_folder in classes:
        files = sorted(_image_files(class_folder))
        if not files:
            raise DataError(f"{class_folder} has no images in it: add some or remove the folder.")
        found += [(file, class_folder.name) for file in files]
    return found


def _image_files(folder: Path) -> Iterator[Path]:
    from PIL import Image

    suffixes = Image.registered_extensions()
    for path in folder.iterdir():
        if path.is_file() and path.suffix.lower() in suffixes and not path.name.startswith("."):
            yield path


def _split(
    listed: list[tuple[Path, str]], seed: int, folder: Path
) -> tuple[list[tuple[Path, str]], list[tuple[Path, str]]]:
    names, labels = np.unique([name for _, name in listed], return_inverse=True)
    train, test = stratified_split(labels, len(names), 0.2, stream(seed, "image-folder/split"))
    if not len(test):
        raise DataError(f"{folder} has too few images to hold a fifth of each class out for testing: add some.")
    return [listed[position] for position in train], [listed[position] for position in test]


def read_images(files: list[Path]) -> Images:
    """(N, channels, height, width): grey if all files are, else RGB."""
    pictures = [_read(file) for file in files]  # (height, width) or (height, width, 3) each
    for file, picture in zip(files, pictures, strict=True):
        if picture.shape[:2] != pictures[0].shape[:2]:
            raise DataError(
                f"Images differ in size: {files[0]} is {_size(pictures[0])}, {file} is {_size(picture)}. "
                "Resize them all to one size."
            )
    if all(picture.ndim == 2 for picture in pictures):
        return np.stack(pictures)[:, None]
    coloured = (picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2) for picture in pictures)
    return np.stack([picture.transpose(2, 0, 1) for picture in coloured])


def _read(file: Path) -> np.ndarray:
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as opened:
            image = ImageOps.exif_transpose(opened)  # as a person sees it, not as the camera was held
            if image.mode.startswith("I;16"):
                return (np.asarray(image) >> 8).astype(np.uint8)
            if image.mode == "P" and "transparency" in image.info:
                image = image.convert("RGBA")
            return np.asarray(image.convert("L" if image.mode in ("1", "L", "LA", "I", "F") else "RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{file} cannot be read as an image ({error}): replace or remove it.") from None


def _size(picture: np.ndarray) -> str:
    return f"{picture.shape[1]} x {picture.shape[0]}"
