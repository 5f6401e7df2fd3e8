"""Public names of a package that are loaded when they are first used: importing torch takes seconds."""

import ast
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package, for the names that it imports `if TYPE_CHECKING:`.

    So a name is imported in one place, and type checkers and editors see plain imports.
    """
    homes: dict[str, str] = {}

    def load_homes() -> None:
        if not homes:
            homes.update(homes_of(inspect.getsource(sys.modules[package])))

    def find(name: str) -> Any:
        if not name.startswith("__"):  # the import system asks for names such as __path__
            load_homes()
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    def listed() -> list[str]:
        load_homes()
        return sorted({*vars(sys.modules[package]), *homes})

    return find, listed


def homes_of(source: str) -> dict[str, str]:
    """Return the module of each name that the source of a package imports `if TYPE_CHECKING:`."""
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    imports = [one for block in blocks for one in block.body if isinstance(one, ast.ImportFrom)]
    return {alias.name: str(one.module) for one in imports for alias in one.names}
