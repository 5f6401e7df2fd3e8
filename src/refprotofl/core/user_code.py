"""The user's own code, named as `module:attribute`: finding the names, loading, and digests without importing."""

import ast
import hashlib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from refprotofl.core.errors import InputError
from refprotofl.core.passed_objects import is_passed, passed_object

_PACKAGE = Path(__file__).parents[1]
_own_folders: set[Path] = set()  # folders that user code was loaded from


def is_reference(name: str) -> bool:
    module, colon, attribute = name.partition(":")
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in module.split("."))


def load_object(name: str, key: str) -> Callable[..., Any]:
    """Return the callable that `key = "module:attribute"` names."""
    if is_passed(name):
        return passed_object(name, key)
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
        _own_folders.add(Path(getattr(module, "__file__", None) or here).parent)
        found = getattr(module, attribute)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{key} = {name!r}: module {error.name!r} not found, neither in {here} nor among the installed ones. "
            "Run this in the module's folder, or add that folder to PYTHONPATH."
        ) from None
    except AttributeError:
        raise InputError(f"{key} = {name!r}: the module {module_name!r} has no {attribute!r}.") from None
    except Exception as error:
        raise InputError(f"{key} = {name!r}: importing it failed with {type(error).__name__}: {error}.") from error
    if not callable(found):
        raise InputError(f"{key} = {name!r} is not callable.")
    return found  # type: ignore[no-any-return]


def search_code_in(folder: Path | None) -> None:
    """Also look for user code in a folder, after all other places: the one that a trusted run was started in."""
    if folder is not None and folder.is_dir() and str(folder) not in sys.path:
        sys.path.append(str(folder))


def blame(problem: BaseException) -> traceback.FrameSummary | None:
    """Return the line of the user's own code that raised a problem; None if our code called the failing library."""
    for frame in reversed(traceback.extract_tb(problem.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return None
        if path.parent in _own_folders:
            return frame
    return None


_INSTALLED = ("site-packages", "dist-packages")


_known: dict[str, tuple[object, str | None]] = {}  # by imported module: its spec and its digest


def digest_code(name: str) -> str | None:
    """Return the digest of the source of `module:attribute` and of its imports from the same folder; None if not found.

    The digest of an imported module does not change: a file that is edited during a run is not the code that runs.
    """
    module = name.partition(":")[0]
    imported = getattr(sys.modules.get(module), "__spec__", None)
    if imported is None:
        return _digest(module)
    if module not in _known or _known[module][0] is not imported:
        _known[module] = imported, _digest(module)
    return _known[module][1]


def _digest(module: str) -> str | None:
    root = next((root for root in _roots() if _files(root, module)), None)
    if root is None:
        return None
    found: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        for file in _files(root, waiting.pop()):
            place = file.relative_to(root).as_posix()
            if place not in found:
                found[place] = file.read_bytes()
                waiting += [named for named in _named(found[place], place) if _is_near(root, named, module)]
    total = hashlib.sha256()
    for place in sorted(found):
        total.update(f"{place}\0{hashlib.sha256(found[place]).hexdigest()}\n".encode())
    return total.hexdigest()


def _roots() -> list[Path]:
    """Return the folders that an import searches, as `load_object` sets them."""
    here = str(Path.cwd())
    places = sys.path if here in sys.path else [here, *sys.path]
    return [Path(place or here) for place in places]


def _files(root: Path, module: str) -> list[Path]:
    """Return the module's file and those of its packages; none if it is not below this root."""
    parts = module.split(".")
    path = root.joinpath(*parts)
    own = next((file for file in (path / "__init__.py", path.with_name(f"{path.name}.py")) if file.is_file()), None)
    if own is None:
        return []
    packages = [root.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts))]
    return [file for file in packages if file.is_file()] + [own]


def _is_near(root: Path, named: str, module: str) -> bool:
    """Return True for a module next to the user's own, or in the same package if that is an installed one."""
    return root.name not in _INSTALLED or named.partition(".")[0] == module.partition(".")[0]


def _named(source: bytes, place: str) -> Iterator[str]:
    """Yield the modules that a source names: in imports, and as module:attribute in strings."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    package = Path(place).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*above, *([node.module] if node.module else [])))
            yield from (name for name in (base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)) if name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and is_reference(node.value):
            yield node.value.partition(":")[0]


Reference = tuple[str, str]  # the dotted key and its value

_DATA_ONLY = ("input",)  # names of classes may look like anything
_OURS = ("hf:", "open_clip:")


def references(plain: Mapping[str, Any], prefix: str = "") -> list[Reference]:
    """Return all references in nested plain values, as an experiment's `plain()` returns them."""
    return list(dict.fromkeys(_walk(plain, prefix)))


def _walk(value: object, key: str) -> Iterator[Reference]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if key or name not in _DATA_ONLY:
                yield from _walk(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _walk(inner, key)
    elif isinstance(value, str) and is_reference(value) and not value.startswith(_OURS):
        yield key, value


def refuse_code(named: Sequence[Reference], where: object, *, trusted: bool) -> None:
    """Raise InputError if code would be imported that the user has not declared trusted, or was to be passed again."""
    for key, name in named:
        if is_passed(name):
            passed_object(name, key)
    imported = [one for one in named if not is_passed(one[1])]
    if imported and not trusted:
        listed = ", ".join(f"{key} = {name!r}" for key, name in imported)
        raise InputError(
            f"{where} names code that would be imported and run: {listed}. If you trust its author, add "
            "--trust-code (in Python: trust_code=True)."
        )
