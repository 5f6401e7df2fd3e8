"""Classes and functions that are passed from Python in place of a name, such as `Experiment(method=MyMethod)`.

One that a module has under its own name is recorded as `module:name`. Others (closures, classes of `__main__`) stay in
this process, under a name with a digest of their code; a run of them resumes where they are passed again.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from refprotofl.core.errors import InputError

IN_PROCESS = "in_process"  # in place of a module
_passed: dict[str, tuple[Callable[..., Any], tuple[object, ...]]] = {}  # by name, with what the digest does not cover


def reference_to(value: object) -> object:
    """Return the name of a class or function, as a file would name it; any other value as it is."""
    if not callable(value) or not hasattr(value, "__qualname__"):
        return value
    module, name = value.__module__, value.__qualname__
    if module != "__main__" and getattr(sys.modules.get(module), name, None) is value:
        return f"{module}:{name}"
    unseen: list[object] = []
    digest = hashlib.sha256("\n".join(_fingerprint(value, unseen, set())).encode()).hexdigest()[:12]
    plain = re.sub(r"\W", "_", name.rpartition(".")[2])
    reference = f"{IN_PROCESS}:{plain}_{digest}"
    known = _passed.get(reference)
    if known is not None and known[0] is not value and [*map(id, known[1])] != [*map(id, unseen)]:
        raise InputError(
            f"two different objects {name} were passed from Python that have the same code: give them "
            "names of their own, or put what they differ in into the method's options."
        )
    _passed[reference] = value, tuple(unseen)
    return reference


def passed_object(reference: str, key: str) -> Callable[..., Any]:
    """Return the object that was passed under this name."""
    if reference not in _passed:
        raise InputError(
            f"{key} = {reference!r} was passed from Python as a class or function that cannot be imported, and this "
            "process did not get it: pass it again, or put it into a module and name it module:Name."
        )
    return _passed[reference][0]


def is_passed(reference: str) -> bool:
    return reference.startswith(f"{IN_PROCESS}:")


def _fingerprint(value: object, unseen: list[object], seen: set[int]) -> Iterator[str]:
    """Yield texts that change where the code changes; `unseen` collects what has no text of its own."""
    if id(value) in seen:
        return
    if isinstance(value, type):
        seen.add(id(value))
        yield from _of_class(value, unseen, seen)
    elif isinstance(value, staticmethod | classmethod):
        yield from _fingerprint(value.__func__, unseen, seen)
    elif isinstance(value, property):
        yield from _fingerprint(value.fget, unseen, seen)
    elif isinstance(value, FunctionType):
        yield from _of_code(value.__code__)
        inner = [*(value.__defaults__ or ()), *(cell.cell_contents for cell in value.__closure__ or ())]
        for one in inner:
            yield from _fingerprint(one, unseen, seen)
    elif isinstance(value, str | int | float | bytes | None):
        yield repr(value)
    elif isinstance(value, tuple | list | frozenset):
        for one in value:
            yield from _fingerprint(one, unseen, seen)
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield str(name)
            yield from _fingerprint(one, unseen, seen)
    else:
        unseen.append(value)


def _of_class(value: type, unseen: list[object], seen: set[int]) -> Iterator[str]:
    yield f"{value.__module__}:{value.__qualname__}"
    if value.__module__ not in ("__main__", IN_PROCESS) and "<locals>" not in value.__qualname__:
        return  # its module's own
    for base in value.__bases__:
        yield from _fingerprint(base, unseen, seen)
    fields = getattr(value, "model_fields", None)
    if isinstance(fields, Mapping):  # a table of options
        yield from (f"{name}={field.default!r}" for name, field in fields.items())
        return
    for name, one in vars(value).items():
        if name != "_abc_impl" and (not name.startswith("__") or isinstance(one, FunctionType)):
            yield name
            yield from _fingerprint(one, unseen, seen)


def _of_code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield " ".join(code.co_names)
    for one in code.co_consts:
        yield from _of_code(one) if isinstance(one, CodeType) else (repr(one),)
