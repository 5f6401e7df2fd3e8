"""Keys of the configuration: types of values, tables of keys with their plain form, and sentences for errors.

A table is frozen and validated, and its plain form is what hashes are made of. Errors of pydantic become one sentence
per key, with the allowed values and the nearest valid key.
"""

import difflib
import math
import re
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, ValidationError
from pydantic.fields import FieldInfo

_UNITS = {"b": 1} | {
    f"{prefix}{ending}": base**power
    for power, prefix in enumerate("kmgt", 1)
    for ending, base in (("b", 1000), ("ib", 1024))
}


def _read_switch(value: object) -> object:
    return (
        {"on": True, "off": False, "true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    )


def _read_size(value: object) -> object:
    """Read a size: '20 kB' is 20,000 bytes, '20 KiB' 20,480; a bare number is bytes."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]+)\s*", value)
    unit = match[2] if match else ""
    bits = re.fullmatch("b|[A-Z]b", unit)  # Mb is a megabit to many
    if match is None or bits or unit.lower() not in _UNITS:
        raise ValueError("is not a size such as '20 kB', '900 B', '1.5 MB' or '64 KiB'")
    return int(Decimal(match[1]) * _UNITS[unit.lower()])


def _read_scalars(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("is not a table")
    for key, scalar in value.items():
        if not isinstance(scalar, str | int | float) or (isinstance(scalar, float) and not math.isfinite(scalar)):
            raise ValueError(f"has {key} = {scalar!r}, which is not a finite number, a text, true or false")
    return dict(value)


def at_most(limit: float) -> AfterValidator:
    """Return a validator that refuses values above a limit, before memory is allocated for them."""

    def check(value: float) -> float:
        if value > limit:
            raise ValueError(f"is more than the maximum of {limit:,}")
        return value

    return AfterValidator(check)


def _read_text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value


def number_of(share: float, size: int) -> int:
    """Return the number that a share of `size` is, at least one."""
    return max(1, int(share * size))


Scalar = str | bool | int | float
Scalars = Annotated[dict[str, Scalar], BeforeValidator(_read_scalars)]
Switch = Annotated[bool, BeforeValidator(_read_switch)]
Share = Annotated[float, Field(gt=0, le=1)]
Weight = Annotated[float, Field(ge=0)]  # of a term in a loss; 0 leaves it out
Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Bytes = Annotated[PositiveInt, BeforeValidator(_read_size), at_most(10**15)]
Text = Annotated[str, AfterValidator(_read_text)]


# When a key is in the plain form. A key added after 0.1.0 enters when it differs from its default, so that hashes stay;
# one that only affects how something is computed never does. "carried": no more does this one, but worker processes and
# nodes get it with the plain form. They have the default of a key that never enters.
Enters = Literal["always", "changed", "carried", "never"]


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class Table(BaseModel):
    """A frozen table of keys, in kebab-case in files."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=_kebab, populate_by_name=True, allow_inf_nan=False
    )

    def plain(self) -> dict[str, Any]:
        """Return nested plain values by key, as in files and hashes."""
        return _entering(self, self.model_dump(mode="json", by_alias=True))


def key(
    default: Any, description: str = "", *, enters: Enters = "always", also: tuple[str, ...] = (), rival: str = ""
) -> Any:
    """Declare a key with its role in hashes, other names that people use, and a key of its table that excludes it."""
    return Field(
        default, description=description, json_schema_extra={"enters": enters, "also": list(also), "rival": rival}
    )


def known_of(field: FieldInfo, what: Literal["enters", "also", "rival"]) -> Any:
    extra = field.json_schema_extra
    return extra.get(what) if isinstance(extra, dict) else None


def _entering(table: Table, dumped: dict[str, Any]) -> dict[str, Any]:
    """Drop the keys that do not enter the plain form, and tables that have none left."""
    kept = {}
    for name, field in type(table).model_fields.items():
        value, enters = getattr(table, name), known_of(field, "enters")
        if enters in ("carried", "never") or (
            enters == "changed" and value == field.get_default(call_default_factory=True)
        ):
            continue
        shown = dumped[str(field.alias)]
        if isinstance(value, Table):
            shown = _entering(value, shown)
            if not shown:
                continue
        kept[str(field.alias)] = shown
    return kept


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
    """Return every dotted key of a configuration model."""
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
    """Return the valid key that was most likely meant: by another name, the same last part or a similar spelling."""
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
    """Return the error for an unknown key, with the most likely one; `prefix` comes before every key."""
    meant = nearest(key, known)
    siblings = [name for name in known if name.rpartition(".")[0] == key.rpartition(".")[0]] or list(known)
    hint = f"did you mean {prefix}{meant}?" if meant else f"known keys: {', '.join(prefix + one for one in siblings)}"
    return f"There is no key {prefix}{key}; {hint}"


def allowed(field: FieldInfo) -> str:
    """Return the allowed values of a key in words: its choices, if any, and its description."""
    words = field.description or ""
    choices = ["on", "off"] if field.annotation is bool else _choices(field.annotation)
    if not choices:
        return words
    listed = " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
    return f"{listed}: {words}" if words else listed


def _choices(annotation: object) -> list[str]:
    return [str(choice) for choice in get_args(annotation)] if get_origin(annotation) is Literal else []


def explain(error: ValidationError, model: type[BaseModel], prefix: str = "") -> str:
    """Return a sentence for every wrong key; `prefix` comes before the model's keys."""
    known = keys(model)
    sentences: dict[str, str] = {}
    for item in error.errors(include_url=False):
        key = _dotted(item["loc"], model, known)
        sentences[key] = _sentence(
            key, item, known, prefix
        )  # of a union's branches, the last error is the most specific
    return "\n".join(sentences.values())


def _dotted(location: tuple[int | str, ...], model: type[BaseModel], known: dict[str, FieldInfo]) -> str:
    """Return the key of an error; pydantic appends list positions and the branches of a union to the path."""
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
