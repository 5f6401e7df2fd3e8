"""Arrays that are passed from Python in place of a data set: `Experiment(dataset=(x, y))`.

They are written once to a .npz file in the user's cache, named by a digest of their contents, which is then the data
set. So runs with them can be resumed, verified and computed in worker processes like any other.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refprotofl.core import InputError, reference_to

_NAMES = {2: ("x", "y"), 4: ("x_train", "y_train", "x_test", "y_test")}


def data_reference(value: object) -> object:
    """Return the name of a data set: of a function, of arrays, or the value itself."""
    if isinstance(value, tuple):
        if len(value) not in _NAMES:
            raise InputError(
                f"dataset has {len(value)} arrays: pass (x, y), (x_train, y_train, x_test, y_test), or a mapping of "
                "names to arrays."
            )
        return _stored(dict(zip(_NAMES[len(value)], value, strict=True)))
    if isinstance(value, Mapping) and value and all(hasattr(one, "__array__") for one in value.values()):
        return _stored({str(name): array for name, array in value.items()})
    return reference_to(value)


def _stored(arrays: Mapping[str, Any]) -> str:
    """Return the path of the file with these arrays; it is written unless it is there."""
    import numpy as np
    import platformdirs

    plain = {name: _plain(name, np.asarray(array)) for name, array in arrays.items()}
    digest = hashlib.sha256()
    for name, array in sorted(plain.items()):
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    folder = Path(platformdirs.user_cache_dir("refprotofl")) / "arrays"
    path = folder / f"arrays-{digest.hexdigest()[:16]}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        with part.open("xb") as stream:
            np.savez(stream, **plain)
        part.replace(path)
    return str(path)


def _plain(name: str, array: Any) -> Any:
    """Return an array without Python objects; texts in a column of a data frame are objects."""
    if array.dtype.kind != "O":
        return array
    if all(isinstance(one, str) for one in array.flat):
        return array.astype(str)
    raise InputError(f"dataset: {name} holds Python objects; pass numbers of one shape per sample, or texts.")
