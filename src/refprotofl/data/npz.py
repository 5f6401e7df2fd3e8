"""A user's own data in one .npz file with x_train, y_train, x_test and y_test."""

from pathlib import Path

from refprotofl.data.array_files import BROKEN, is_npy, read_npz
from refprotofl.data.dataset import Dataset
from refprotofl.data.own_arrays import NAMES, dataset_from_arrays
from refprotofl.data.own_clients import CLIENT_NAMES
from refprotofl.errors import DataError


def load_npz(path: Path) -> Dataset:
    known = (*NAMES, *CLIENT_NAMES)
    try:
        if is_npy(path):
            raise DataError(f"{path} holds a single array; save {', '.join(NAMES)} with numpy.savez_compressed.")
        arrays = read_npz(path, lambda names: [name for name in known if name in names])
    except BROKEN as error:
        raise DataError(
            f"{path} is not a readable .npz file ({error}): save it again with numpy.savez_compressed."
        ) from None
    return dataset_from_arrays(arrays, str(path))
