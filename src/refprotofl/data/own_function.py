"""A user's own loader, named as `module:function` and found from the folder they stand in."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refprotofl.data.dataset import Dataset
from refprotofl.data.own_arrays import NAMES, dataset_from_arrays
from refprotofl.errors import DataError, InputError


def is_function_name(name: str) -> bool:
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def load_from_function(name: str) -> Dataset:
    """Call the function, without arguments; it gives the four arrays in a mapping, or a Dataset."""
    function = _find(name)
    try:
        result = function()
    except Exception as error:
        raise DataError(f"dataset = {name!r}: the function failed with {type(error).__name__}: {error}.") from error
    if isinstance(result, Dataset):
        # The user's Dataset passes through the same checks as everybody's arrays.
        splits = (result.train_images, result.train_labels, result.test_images, result.test_labels)
        return dataset_from_arrays(dict(zip(NAMES, splits, strict=True)), name, result.class_names)
    if not isinstance(result, Mapping):
        raise DataError(
            f"dataset = {name!r}: the function gave {type(result).__name__}; "
            f"it must give a mapping with {', '.join(NAMES)}, or a Dataset."
        )
    return dataset_from_arrays(result, name)


def _find(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        raise InputError(f"dataset = {name!r}: there is no module {error.name!r}, looked in {here} too.") from None
    except AttributeError:
        raise InputError(f"dataset = {name!r}: the module {module_name!r} has no {attribute!r}.") from None
    except Exception as error:
        raise InputError(f"dataset = {name!r}: importing it failed with {type(error).__name__}: {error}.") from error
    if not callable(function):
        raise InputError(f"dataset = {name!r} is not a function.")
    return function
