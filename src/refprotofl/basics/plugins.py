"""The user's own code, named as `module:attribute` and found from the folder they stand in."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from refprotofl.errors import InputError


def is_reference(name: str) -> bool:
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def load_object(name: str, key: str) -> Callable[..., Any]:
    """The callable that `key = "module:attribute"` names."""
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        raise InputError(f"{key} = {name!r}: there is no module {error.name!r}, looked in {here} too.") from None
    except AttributeError:
        raise InputError(f"{key} = {name!r}: the module {module_name!r} has no {attribute!r}.") from None
    except Exception as error:
        raise InputError(f"{key} = {name!r}: importing it failed with {type(error).__name__}: {error}.") from error
    if not callable(found):
        raise InputError(f"{key} = {name!r} is not callable.")
    return found  # type: ignore[no-any-return]
