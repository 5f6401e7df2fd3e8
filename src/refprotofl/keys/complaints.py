"""Turns what pydantic says about a configuration into one sentence a key, with the nearest valid key."""

import difflib
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

_PROBLEMS = {
    "int_type": "is not a whole number",
    "int_from_float": "is not a whole number",
    "float_type": "is not a number",
    "finite_number": "is not finite",
    "bool_type": "is not on or off",
    "string_type": "is not a text",
    "tuple_type": "is not a list",
    "model_type": "is not a table",
    "greater_than": "is too small",
    "greater_than_equal": "is too small",
    "less_than": "is too large",
    "less_than_equal": "is too large",
    "literal_error": "is not known",
}


_OTHER_WORDS = {
    "learning-rate": "train.lr",
    "epochs": "train.local-epochs",
    "num-clients": "clients",
    "num-rounds": "rounds",
    "lambda": "refprotofl.align",
    "budget": "refprotofl.uplink-budget",
}


def keys(model: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """Every dotted key of a configuration model."""
    found: dict[str, FieldInfo] = {}
    for field in model.model_fields.values():
        name = f"{prefix}{field.alias}"
        table = field.annotation
        if isinstance(table, type) and issubclass(table, BaseModel):
            found |= keys(table, f"{name}.")
        else:
            found[name] = field
    return found


def nearest(key: str, known: list[str]) -> str | None:
    """The valid key that was most likely meant: another word for it, the same last part, a similar spelling."""
    table, _, last = key.replace("_", "-").rpartition(".")
    if last in _OTHER_WORDS:
        return _OTHER_WORDS[last]
    by_last: dict[str, str] = {}
    for name in sorted(known, key=lambda name: name.rpartition(".")[0] != table):  # the own table's keys first
        by_last.setdefault(name.rpartition(".")[2], name)
    close = difflib.get_close_matches(last, by_last, n=1, cutoff=0.6)
    if close:
        return by_last[close[0]]
    tables = difflib.get_close_matches(last, {name.partition(".")[0] for name in known if "." in name}, n=1)
    return tables[0] if tables else None


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    known = keys(model)
    sentences: dict[str, str] = {}
    for item in error.errors(include_url=False):
        key = _dotted(item["loc"], model, known)
        sentences[key] = _sentence(key, item, known)  # of a union's branches the last says most
    return "\n".join(sentences.values())


def _dotted(location: tuple[int | str, ...], model: type[BaseModel], known: dict[str, FieldInfo]) -> str:
    """The key itself: pydantic appends list positions and the branches of a union to the path."""
    parts = [str(part) for part in location]
    tables = {str(field.alias) for field in model.model_fields.values()}
    for length in range(1, len(parts) + 1):
        key = ".".join(parts[:length]).replace("_", "-")
        if key in known:
            return key
        if length == len(parts) or parts[0] not in tables:
            return ".".join(parts)
    return ""


def _sentence(key: str, item: Any, known: dict[str, FieldInfo]) -> str:
    if item["type"] == "extra_forbidden":
        meant = nearest(key, list(known))
        siblings = [name for name in known if name.rpartition(".")[0] == key.rpartition(".")[0]] or list(known)
        hint = f"did you mean {meant}?" if meant else f"known keys: {', '.join(siblings)}"
        return f"There is no key {key}; {hint}"
    if item["type"] == "value_error":
        problem = str(item["ctx"]["error"])
    else:
        problem = _PROBLEMS.get(item["type"], "is not valid")
    if key not in known:
        return f"{f'[{key}]' if key else 'The experiment'} {problem}."
    return f"{key} = {item['input']!r} {problem}; allowed: {known[key].description}."
