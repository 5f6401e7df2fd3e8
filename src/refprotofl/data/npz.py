"""A user's own data in one .npz file with x_train, y_train, x_test and y_test."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from refprotofl.data.dataset import Dataset
from refprotofl.data.own_arrays import NAMES, dataset_from_arrays
from refprotofl.errors import DataError


def load_npz(path: Path) -> Dataset:
    try:
        # Never pickles: a data file must not be able to run code.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise DataError(f"{path} holds a single array; save {', '.join(NAMES)} with numpy.savez_compressed.")
            arrays = {name: _member(file, name, path) for name in NAMES if name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} is not a readable .npz file ({error}): save it again with numpy.savez_compressed."
        ) from None
    return dataset_from_arrays(arrays, str(path))


def _member(file: "np.lib.npyio.NpzFile", name: str, path: Path) -> np.ndarray:
    try:
        return np.asarray(file[name])
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{path}: {name} is an array of Python objects, which is not loaded because it could run code. "
            "Save images as one numeric array and labels as whole numbers or with astype(str)."
        ) from None
