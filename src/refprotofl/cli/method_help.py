"""What `refprotofl methods NAME` tells of one method."""

from refprotofl.experiment import Experiment
from refprotofl.keys.complaints import allowed, keys
from refprotofl.methods.catalogue import METHODS, find_method
from refprotofl.methods.declaration import Method


def lines(method: Method) -> list[str]:
    """What it is, shares and sends."""
    experiment = Experiment.model_construct(**{**dict(Experiment()), "method": method.name})
    cost, shared = method.cost(experiment), ", ".join(method.shared(experiment)) or "nothing"
    return [
        f"{method.name}: {method.line}",
        f"shared: {shared}; values a client and round: {cost.up} up, {cost.down} down",
        *(_private(unit, said) for unit, said in vars(method.releases(experiment)).items()),
        *(f"note: {note}" for note in method.notes),
        *([f"more: {method.page}"] if method.page else []),
    ]


def _private(unit: str, said: int | str) -> str:
    return f'privacy.unit = "{unit}": ' + (f"not defined, as {said}" if isinstance(said, str) else "yes")


def key_rows(name: str) -> list[tuple[str, str, str]]:
    """Its own keys with their defaults and what they take."""
    method = find_method(name)
    prefix = name if name in METHODS else "own"
    if method.table is None:
        return [(f"{prefix}.{key}", _shown(default), "") for key, default in method.defaults.items()]
    return [
        (f"{prefix}.{key}", _shown(field.get_default(call_default_factory=True)), allowed(field))
        for key, field in keys(method.table).items()
    ]


def _shown(default: object) -> str:
    if default is None:
        return "-"
    return ("on" if default else "off") if isinstance(default, bool) else str(default)
