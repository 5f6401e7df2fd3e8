"""Kinds of values that keys take."""

import math
import re
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt

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
    """'20 kB' is 20,000 bytes, '20 KiB' 20,480; a bare number is bytes."""
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
    """Refuses what nobody means and no memory holds, before anything is made of it."""

    def check(value: float) -> float:
        if value > limit:
            raise ValueError(f"is more than {limit:,}, the most that is taken")
        return value

    return AfterValidator(check)


def _read_text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    return value


def number_of(share: float, size: int) -> int:
    """How many of `size` a share of them is: one at least."""
    return max(1, int(share * size))


Scalar = str | bool | int | float
Scalars = Annotated[dict[str, Scalar], BeforeValidator(_read_scalars)]
Switch = Annotated[bool, BeforeValidator(_read_switch)]
Share = Annotated[float, Field(gt=0, le=1)]
Weight = Annotated[float, Field(ge=0)]  # of a term in a loss; 0 is without it
Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Bytes = Annotated[PositiveInt, BeforeValidator(_read_size), at_most(10**15)]
Text = Annotated[str, AfterValidator(_read_text)]
