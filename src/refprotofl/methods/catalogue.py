"""All methods by name: those declared in the modules and folders of `builtin`, and a user's own as `module:Class`."""

import difflib
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any, get_args

from pydantic import ValidationError

from refprotofl.core import InputError, is_reference, load_object
from refprotofl.experiment import Scalar, Table
from refprotofl.experiment.keys import explain
from refprotofl.methods import builtin
from refprotofl.methods.declaration import Defaults, Method

if TYPE_CHECKING:
    from refprotofl.experiment import Experiment

GUIDE = "docs/add-a-method.md shows how"


def _found() -> Iterator[Method]:
    for module in sorted(pkgutil.iter_modules(builtin.__path__), key=lambda module: module.name):
        imported = importlib.import_module(f"{builtin.__name__}.{module.name}")
        for found in vars(imported).values():
            if isinstance(found, type) and issubclass(found, Method) and found.__module__ == imported.__name__:
                yield found()


METHODS: dict[str, Method] = {method.name: method for method in _found()}

TABLES: dict[str, type[Table]] = {name: method.table for name, method in METHODS.items() if method.table}


def find_method(name: str) -> Method:
    """Return the method of this name; of a user's own `module:Class` the module is imported."""
    if name in METHODS:
        return METHODS[name]
    if is_reference(name):
        return _own(name)
    close = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(METHODS)}, or module:Class for your own."
    raise InputError(f"method = {name!r} is not known; {hint}")


def _own(name: str) -> Method:
    """Return the method that the user's class `module:Class` declares."""
    source, where = load_object(name, "method"), f"method = {name!r}"
    if not isinstance(source, type):
        raise InputError(f"{where} is not a class; {GUIDE}.")
    if not issubclass(source, Method):  # a class with the same attributes
        source = type(source.__name__, (source, Method), {"__doc__": source.__doc__})
    method: Method = source(name)
    _check_code(where, method)
    _check_options(where, method.options)
    related = _related_method(method)
    if related is not None:
        for fact in ("feedback", "depends_on_rounds", "sgd_only"):
            if getattr(source, fact) is getattr(Method, fact):
                setattr(method, fact, getattr(related, fact))
    return method


def _check_code(where: str, method: Method) -> None:
    server, client = (getattr(method, part, None) for part in ("server", "client"))
    _check_part(where, "server", server, load_object("refprotofl.methods.base.server:Server", where))
    _check_part(where, "client", client, load_object("refprotofl.methods.base.client:Client", where))
    _check_constructor(where, method.server)
    unanswered = [verb for verb in method.client.verbs if not hasattr(client, verb)]
    if unanswered:
        raise InputError(f"{where}: {method.client.__name__} has no method for its verbs {', '.join(unanswered)}.")


def _check_part(where: str, attribute: str, found: object, kind: Any) -> None:
    if found is None:
        raise InputError(f"{where} has no attribute {attribute!r}, which must be its {kind.__name__} class; {GUIDE}.")
    if not isinstance(found, type) or not issubclass(found, kind):
        seen = found.__name__ if isinstance(found, type) else repr(found)
        raise InputError(f"{where}: its {attribute} {seen} is not a subclass of refprotofl.methods.{kind.__name__}.")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise InputError(f"{where}: {found.__name__} must still define {', '.join(missing)}; {GUIDE}.")


def _check_constructor(where: str, server: type) -> None:
    required = [one for one in signature(server).parameters.values() if one.default is one.empty]
    if len(required) != 1 or required[0].kind is required[0].KEYWORD_ONLY:
        names = ", ".join(one.name for one in required) or "nothing"
        raise InputError(
            f"{where}: the constructor of {server.__name__} takes {names}; it must take one argument, the context, "
            f"which holds all that a server has; {GUIDE}."
        )


def _check_options(where: str, options: object) -> None:
    if isinstance(options, type) and issubclass(options, Table):
        return
    if not isinstance(options, Mapping) or not all(isinstance(value, get_args(Scalar)) for value in options.values()):
        raise InputError(
            f"{where}: options = {options!r} is not a dict of names and their default values, nor a subclass of "
            "refprotofl.methods.Table."
        )


def _related_method(method: Method) -> Method | None:
    """Return the built-in method whose server or client a user's own uses, and with it that method's options."""
    read = method.read_table
    if read is None or (method.table is not None and issubclass(method.table, read)):
        return None
    return next((METHODS[name] for name, table in TABLES.items() if table is read), None)


def depends_on_rounds(experiment: "Experiment") -> bool:
    """Return whether a run cannot be extended: a round depends on the number of rounds, or fine-tuning follows them."""
    stops = experiment.stop.enabled and experiment.evaluate.every == "auto"  # evaluations depend on it, and they decide
    fixed = stops or experiment.train.depends_on_rounds or experiment.finetune.passes > 0
    return fixed or find_method(experiment.method).depends_on_rounds


def options_of(experiment: "Experiment") -> Any:
    """Return the options of the experiment's method: its table.

    A user's own method takes them from [own]; with the server or client of a built-in one, from that one's table.
    """
    method = find_method(experiment.method)
    owner = method if method.name in METHODS else _related_method(method)
    if owner is not None:
        return getattr(experiment, owner.name.replace("-", "_")) if owner.table else {}
    return experiment.own if method.table is None else _read_own(method.table, experiment.own)


def with_options(experiment: "Experiment") -> "Experiment":
    """Return the experiment with what a user's own method decides filled in, once its rules are checked."""
    method = find_method(experiment.method)
    if method.table is None or method.name in METHODS:
        own = fill_options(method.name, method.defaults, experiment.own)
    else:
        own = _read_own(method.table, experiment.own).plain()
    share = method.auto_share if experiment.share == "auto" else experiment.share
    filled = experiment.model_copy(update={"own": own, "share": share})
    try:
        method.check_all(filled)
    except ValueError as problem:
        raise InputError(f"The experiment {problem}.") from None
    return filled


def _read_own(table: type[Table], own: dict[str, Scalar]) -> Table:
    try:
        return table.model_validate(own)
    except ValidationError as error:
        raise InputError(explain(error, table, "own.")) from None


def fill_options(name: str, options: Defaults, own: Defaults) -> dict[str, Scalar]:
    """Return the defaults of a method's options, overridden by the table [own]."""
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
