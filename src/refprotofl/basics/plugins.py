"""The user's own code, named as `module:attribute` and found from the folder they stand in."""

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from refprotofl.errors import InputError

_PACKAGE = Path(__file__).parents[1]
_own_folders: set[Path] = set()  # where code was loaded from that is not ours


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
        module = importlib.import_module(module_name)
        _own_folders.add(Path(getattr(module, "__file__", None) or here).parent)
        found = getattr(module, attribute)
    except ModuleNotFoundError as error:
        raise InputError(f"{key} = {name!r}: there is no module {error.name!r}, looked in {here} too.") from None
    except AttributeError:
        raise InputError(f"{key} = {name!r}: the module {module_name!r} has no {attribute!r}.") from None
    except Exception as error:
        raise InputError(f"{key} = {name!r}: importing it failed with {type(error).__name__}: {error}.") from error
    if not callable(found):
        raise InputError(f"{key} = {name!r} is not callable.")
    return found  # type: ignore[no-any-return]


def blame(problem: BaseException) -> traceback.FrameSummary | None:
    """The line of the user's own code that a problem comes from; None if our code was the last to call on a library."""
    for frame in reversed(traceback.extract_tb(problem.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return None
        if path.parent in _own_folders:
            return frame
    return None
