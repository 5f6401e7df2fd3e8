"""From what the user wrote under `dataset` to the data."""

import difflib
import os
from pathlib import Path

from refprotofl.basics.plugins import is_reference
from refprotofl.data.dataset import Dataset
from refprotofl.data.digits import load_digits
from refprotofl.data.fetching import load_standard
from refprotofl.data.huggingface import load_huggingface
from refprotofl.data.image_folder import load_image_folder
from refprotofl.data.npz import load_npz
from refprotofl.data.own_function import load_from_function
from refprotofl.data.standard import STANDARD
from refprotofl.errors import InputError

NAMES = ("digits", *STANDARD)
FORMS = f"{', '.join(NAMES)}, a path to a .npz file or a folder of images, hf:owner/name, or module:function"


def load_dataset(name: str, data_dir: Path | None = None, seed: int = 0) -> Dataset:
    """A data set by name, path, hub name or function.

    Standard sets are looked for in `data_dir`, $REFPROTOFL_DATA and the user's cache, then downloaded.
    The seed only matters where a set comes without a test split of its own.
    """
    if name == "digits":
        return load_digits()
    if name in STANDARD:
        return load_standard(STANDARD[name], data_dir)
    if name.startswith("hf:"):
        return load_huggingface(name.removeprefix("hf:"), seed)
    path = Path(name).expanduser()
    if path.is_dir():
        return load_image_folder(path, seed)
    if path.is_file() and path.suffix == ".npz":
        return load_npz(path)
    if is_reference(name):
        return load_from_function(name)
    raise InputError(_complaint(name, path))


def _complaint(name: str, path: Path) -> str:
    if path.is_file():
        return f"dataset = {name!r}: this kind of file is not read. Allowed are: {FORMS}."
    if path.suffix == ".npz" or any(separator in name for separator in ("/", os.sep)):
        return f"dataset = {name!r}: there is no such file or folder, seen from {Path.cwd()}."
    nearest = difflib.get_close_matches(name.lower().replace("_", "-"), NAMES, n=1, cutoff=0.5)
    guess = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return f"dataset = {name!r} is not known.{guess} Allowed are: {FORMS}."
