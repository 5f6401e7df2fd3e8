"""A user's own data in one .npz file with x_train, y_train, x_test and y_test.

A user's own loader, named as `module:function` and found from the folder they stand in.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from refprotofl.core.errors import DataError
from refprotofl.core.user_code import load_object
from refprotofl.data.array_files import BROKEN, is_npy, read_npz
from refprotofl.data.arrays import CLIENT_NAMES, NAMES, dataset_from_arrays
from refprotofl.data.dataset import Dataset


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


def load_from_function(name: str) -> Dataset:
    """Call the function, without arguments; it gives the arrays of a .npz in a mapping, or a Dataset."""
    function = load_object(name, "dataset")
    try:
        result = function()
    except Exception as error:
        raise DataError(f"dataset = {name!r}: the function failed with {type(error).__name__}: {error}.") from error
    if isinstance(result, Dataset):
        # The user's Dataset passes through the same checks as everybody's arrays.
        splits = (result.train_images, result.train_labels, result.test_images, result.test_labels)
        arrays = dict(zip(NAMES, splits, strict=True))
        for key, owners in zip(CLIENT_NAMES, (result.train_owners, result.test_owners), strict=True):
            if owners is not None:
                arrays[key] = np.array(result.client_names)[owners]
        return dataset_from_arrays(arrays, name, result.class_names)
    if not isinstance(result, Mapping):
        raise DataError(
            f"dataset = {name!r}: the function gave {type(result).__name__}; "
            f"it must give a mapping with {', '.join(NAMES)}, or a Dataset."
        )
    return dataset_from_arrays(result, name)
