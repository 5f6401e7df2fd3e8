"""All methods by name: every folder of `builtin` that declares one, and a user's own as `module:Class`."""

import difflib
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from refprotofl.core.errors import InputError
from refprotofl.core.user_code import is_reference, load_object
from refprotofl.experiment.keys import Scalar, Table, explain
from refprotofl.methods import builtin
from refprotofl.methods.declaration import GUIDE, Declaration, Defaults, Method, declared

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment


def _found() -> Iterator[Method]:
    for folder in sorted(pkgutil.iter_modules(builtin.__path__), key=lambda folder: folder.name):
        module = importlib.import_module(f"{builtin.__name__}.{folder.name}")
        for found in vars(module).values():
            if isinstance(found, type) and issubclass(found, Declaration) and found.__module__ == module.__name__:
                yield declared(found.name, found, f"method = {found.name!r}", f"docs/methods/{folder.name}.md")


METHODS: dict[str, Method] = {method.name: method for method in _found()}

TABLES: dict[str, type[Table]] = {name: method.table for name, method in METHODS.items() if method.table}


def find_method(name: str) -> Method:
    if name in METHODS:
        return METHODS[name]
    if is_reference(name):
        return _own(name)
    close = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(METHODS)}, or module:Class for your own."
    raise InputError(f"method = {name!r} is not known; {hint}")


def _own(name: str) -> Method:
    """The method that the user's class `module:Class` declares by its attributes."""
    source, where = load_object(name, "method"), f"method = {name!r}"
    if not isinstance(source, type):
        raise InputError(f"{where} is not a class; {GUIDE}.")
    method = declared(name, source, where)
    lender = _lender(method)
    if lender is None:
        return method
    feedback = method.feedback if hasattr(source, "feedback") else lender.feedback
    depends = method.depends_on_rounds if hasattr(source, "depends_on_rounds") else lender.depends_on_rounds
    return replace(method, feedback=feedback, depends_on_rounds=depends)


def _lender(method: Method) -> Method | None:
    """The built-in method whose server or client a user's own has, with that method's options."""
    read = method.read_table
    if read is None or (method.table is not None and issubclass(method.table, read)):
        return None
    return next((METHODS[name] for name, table in TABLES.items() if table is read), None)


def options_of(experiment: "Experiment") -> Any:
    """The options of the experiment's method: its table.

    Of a user's own method what [own] says; with the server or client of a built-in one, that one's table.
    """
    method = find_method(experiment.method)
    owner = method if method.name in METHODS else _lender(method)
    if owner is not None:
        return getattr(experiment, owner.name.replace("-", "_")) if owner.table else {}
    return experiment.own if method.table is None else _read_own(method.table, experiment.own)


def with_options(experiment: "Experiment") -> "Experiment":
    """With the defaults of a method of the user's own filled in, and its rules held."""
    method = find_method(experiment.method)
    if method.table is None or method.name in METHODS:
        own = fill_options(method.name, method.defaults, experiment.own)
    else:
        own = _read_own(method.table, experiment.own).plain()
    filled = experiment.model_copy(update={"own": own})
    try:
        method.check(filled)
    except ValueError as problem:
        raise InputError(f"The experiment {problem}.") from None
    return filled


def _read_own(table: type[Table], own: dict[str, Scalar]) -> Table:
    try:
        return table.model_validate(own)
    except ValidationError as error:
        raise InputError(explain(error, table, "own.")) from None


def fill_options(name: str, options: Defaults, own: Defaults) -> dict[str, Scalar]:
    """The defaults of a method's options, and over them what the table [own] says."""
    filled = dict(options)
    for key, value in own.items():
        if key not in options:
            known = f"its options are {', '.join(options)}" if options else "it takes no options from [own]"
            raise InputError(f"own.{key} = {value!r} is not an option of method = {name!r}; {known}.")
        filled[key] = _as_kind_of(options[key], value)
        if type(filled[key]) is not type(options[key]):
            raise InputError(f"own.{key} = {value!r} is not of the kind of its default, {options[key]!r}.")
    return filled


def _as_kind_of(default: Scalar, value: Scalar) -> Scalar:
    if type(default) is float and type(value) is int:
        return float(value)
    if type(default) is bool and value in ("on", "off"):
        return value == "on"
    return value
