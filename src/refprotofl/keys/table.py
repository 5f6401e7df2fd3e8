"""A table of keys: frozen, validated, with what is allowed beside every key, and its plain form for hashes."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

# When a key is in the plain form. One that came after 0.1.0 enters when it is changed, so that old hashes hold; one
# that says how something is computed, not what, never does.
Enters = Literal["always", "changed", "never"]


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class Table(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=_kebab, populate_by_name=True, allow_inf_nan=False
    )

    def plain(self) -> dict[str, Any]:
        """Nested plain values by key, as files hold them and hashes are made of."""
        return _entering(self, self.model_dump(mode="json", by_alias=True))


def key(
    default: Any, description: str = "", *, enters: Enters = "always", also: tuple[str, ...] = (), rival: str = ""
) -> Any:
    """A key with more to know of it: other words that people use for it, and a key of its table that excludes it."""
    return Field(
        default, description=description, json_schema_extra={"enters": enters, "also": list(also), "rival": rival}
    )


def known_of(field: FieldInfo, what: Literal["enters", "also", "rival"]) -> Any:
    extra = field.json_schema_extra
    return extra.get(what) if isinstance(extra, dict) else None


def _entering(table: Table, dumped: dict[str, Any]) -> dict[str, Any]:
    """Without the keys that do not enter; a table that has none left is gone."""
    kept = {}
    for name, field in type(table).model_fields.items():
        value, enters = getattr(table, name), known_of(field, "enters")
        if enters == "never" or (enters == "changed" and value == field.get_default(call_default_factory=True)):
            continue
        shown = dumped[str(field.alias)]
        if isinstance(value, Table):
            shown = _entering(value, shown)
            if not shown:
                continue
        kept[str(field.alias)] = shown
    return kept
