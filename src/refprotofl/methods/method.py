"""What a method is to the rest of the package, and one of the user's own read from its class."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import get_args

from refprotofl.basics.plugins import load_object
from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.experiment.tables import Scalar
from refprotofl.methods.base import Client, Server
from refprotofl.methods.costs import Cost, weights
from refprotofl.models import ADAPTER, ALL, Parts

GUIDE = "docs/add-a-method.md shows how"


def by_share(experiment: Experiment) -> Parts:
    return ALL if experiment.share == "full" else ADAPTER


@dataclass(frozen=True)
class Method:
    """A server, a client, and the model's parts that they share."""

    line: str  # what it does, in one line
    server: type[Server]
    client: type[Client]
    shared: Callable[[Experiment], Parts] = by_share
    extra_outputs: Callable[[Experiment], int] = lambda experiment: 0
    cost: Callable[[Experiment], Cost] = weights
    pooled: bool = False  # no federation: the server is given all clients' samples in place of the public set
    options: Mapping[str, Scalar] = field(default_factory=dict)  # what [own] may set, with its defaults


def load_method(name: str) -> Method:
    """The method that the user's class `module:Class` declares by its attributes."""
    where = f"method = {name!r}"
    declared = load_object(name, "method")
    if not isinstance(declared, type):
        raise InputError(f"{where} is not a class; {GUIDE}.")
    for attribute, kind in (("server", Server), ("client", Client)):
        _check_part(where, attribute, getattr(declared, attribute, None), kind)
    client: type[Client] = declared.client  # type: ignore[attr-defined]
    unanswered = [verb for verb in client.verbs if not hasattr(client, verb)]
    if unanswered:
        raise InputError(f"{where}: {client.__name__} has no method for its verbs {', '.join(unanswered)}.")
    return Method(
        line=(declared.__doc__ or name).strip().splitlines()[0],
        server=declared.server,  # type: ignore[attr-defined]
        client=client,
        shared=_shared(where, getattr(declared, "shared", by_share)),
        options=_options(where, getattr(declared, "options", {})),
    )


def _check_part(where: str, attribute: str, found: object, kind: type) -> None:
    if found is None:
        raise InputError(f"{where} has no attribute {attribute!r}, which must be its {kind.__name__} class; {GUIDE}.")
    if not isinstance(found, type) or not issubclass(found, kind):
        seen = found.__name__ if isinstance(found, type) else repr(found)
        raise InputError(f"{where}: its {attribute} {seen} is not a subclass of refprotofl.methods.{kind.__name__}.")
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise InputError(f"{where}: {found.__name__} must still define {', '.join(missing)}; {GUIDE}.")


def _shared(where: str, shared: object) -> Callable[[Experiment], Parts]:
    """Parts of the model, or a function of the experiment that gives them."""
    if callable(shared):
        return shared
    if not isinstance(shared, tuple) or not set(shared) <= set(ALL):
        raise InputError(f"{where}: shared = {shared!r} is not a tuple of some of {', '.join(ALL)}.")
    return lambda experiment: shared


def _options(where: str, options: object) -> Mapping[str, Scalar]:
    if not isinstance(options, dict) or not all(isinstance(value, get_args(Scalar)) for value in options.values()):
        raise InputError(f"{where}: options = {options!r} is not a dict of names and their default values.")
    return options


def fill_options(name: str, options: Mapping[str, Scalar], own: Mapping[str, Scalar]) -> dict[str, Scalar]:
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
