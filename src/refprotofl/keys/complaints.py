"""Turns what pydantic says about a configuration into one sentence a key, with the nearest valid key."""

import difflib
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from refprotofl.keys.table import known_of

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


def nearest(key: str, known: dict[str, FieldInfo]) -> str | None:
    """The valid key that was most likely meant: another word for it, the same last part, a similar spelling."""
    table, _, last = key.replace("_", "-").rpartition(".")
    for name, field in known.items():
        if last in (known_of(field, "also") or ()):
            return name
    by_last: dict[str, str] = {}
    for name in sorted(known, key=lambda name: name.rpartition(".")[0] != table):  # the own table's keys first
        by_last.setdefault(name.rpartition(".")[2], name)
    close = difflib.get_close_matches(last, by_last, n=1, cutoff=0.6)
    if close:
        return by_last[close[0]]
    tables = difflib.get_close_matches(last, {name.partition(".")[0] for name in known if "." in name}, n=1)
    return tables[0] if tables else None


def no_such_key(key: str, known: dict[str, FieldInfo], prefix: str = "") -> str:
    """A sentence with the key that was most likely meant; `prefix` is what stands before all of them."""
    meant = nearest(key, known)
    siblings = [name for name in known if name.rpartition(".")[0] == key.rpartition(".")[0]] or list(known)
    hint = f"did you mean {prefix}{meant}?" if meant else f"known keys: {', '.join(prefix + one for one in siblings)}"
    return f"There is no key {prefix}{key}; {hint}"


def allowed(field: FieldInfo) -> str:
    """What a key takes, in words: its choices if it has such, and its description."""
    words = field.description or ""
    choices = ["on", "off"] if field.annotation is bool else _choices(field.annotation)
    if not choices:
        return words
    listed = " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
    return f"{listed}: {words}" if words else listed


def _choices(annotation: object) -> list[str]:
    return [str(choice) for choice in get_args(annotation)] if get_origin(annotation) is Literal else []


def explain(error: ValidationError, model: type[BaseModel], prefix: str = "") -> str:
    """A sentence for every wrong key; `prefix` is what stands before the model's keys."""
    known = keys(model)
    sentences: dict[str, str] = {}
    for item in error.errors(include_url=False):
        key = _dotted(item["loc"], model, known)
        sentences[key] = _sentence(key, item, known, prefix)  # of a union's branches the last says most
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


def _sentence(key: str, item: Any, known: dict[str, FieldInfo], prefix: str) -> str:
    if item["type"] == "extra_forbidden":
        return no_such_key(key, known, prefix)
    if item["type"] == "value_error":
        problem = str(item["ctx"]["error"])
    else:
        problem = _PROBLEMS.get(item["type"], "is not valid")
    if key not in known:
        table = f"{prefix}{key}".rstrip(".")
        return f"{f'[{table}]' if table else 'The experiment'} {problem}."
    return f"{prefix}{key} = {item['input']!r} {problem}; allowed: {allowed(known[key])}."
