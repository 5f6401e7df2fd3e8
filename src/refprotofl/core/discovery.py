"""Classes by name: each module of a folder holds one, and a user's own is called `module:Class`.

Names are known without importing the modules, so that keys which take them load without torch.
"""

import pkgutil
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from refprotofl.core.errors import InputError
from refprotofl.core.user_code import is_reference, load_object

OWN = "module:Class for one of your own"


def names_in(path: Iterable[str], first: str) -> tuple[str, ...]:
    """Return the names of a folder's modules, spelled with dashes; `first` leads, the others are sorted."""
    found = {module.name.replace("_", "-") for module in pkgutil.iter_modules(path)}
    return (first, *sorted(found - {first}))


def check_name(name: str, known: Iterable[str]) -> str:
    """Return the name; ValueError if it is neither known nor a user's own."""
    if name not in known and not is_reference(name):
        raise ValueError("is not known")
    return name


def find_class(name: str, package: str, kind: str, key: str) -> Any:
    """Return the class that `key = name` means: from the package's module of that name, or the user's own.

    `kind`, as `module:Class`, is the class that it must derive from.
    """
    home, _, attribute = kind.partition(":")
    base: Any = getattr(import_module(home), attribute)
    if is_reference(name):
        found: Any = load_object(name, key)
        if not isinstance(found, type) or not issubclass(found, base):
            raise InputError(f"{key} = {name!r} is not a subclass of {kind.replace(':', '.')}.")
        return found
    module = import_module(f"{package}.{name.replace('-', '_')}")
    classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    return next(one for one in classes if issubclass(one, base))
