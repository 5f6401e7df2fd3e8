"""The search space: keys and their values, as a user types them.

`train.lr=0.003,0.01,0.03` lists values; `train.lr=0.001..0.1:log` is a range to draw from. A method's own key, such as
`fedprox.mu`, applies to that method alone, and so does any key after a method's name: `fedavg@train.lr=…`.
"""

import math
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from refprotofl.core import InputError
from refprotofl.experiment import read_settings
from refprotofl.methods import TABLES
from refprotofl.studies.rows import read_switches, split_list

_DIMENSION = re.compile(r"(?:(?P<method>[^@]+)@)?(?P<key>[A-Za-z][\w.-]*)\s*=\s*(?P<values>\S.*?)\s*")
_RANGE = re.compile(r"(?P<low>.+?)\.\.(?P<high>.+?)(?P<log>:log)?")

# Keys that scores or the cost of a run depend on: equal in all trials of all methods, so that these are comparable.
_FIXED = {
    *("method", "rounds", "seed", "clients", "fraction", "partition", "alpha", "min-size", "validation", "evaluate"),
    *("dataset", "train-limit", "resize", "crop", "test", "input", "dropout", "attack", "stop"),
    *("public.per-class", "public.coverage", "public.classes", "public.dataset"),
    *("device", "numerics", "deadline", "keep-checkpoints", "min-replies", "max-samples"),
}
# Equal in all trials of a method, but open to its switches: a search would choose the most work, or no privacy.
_CHOSEN = {"train.local-epochs", "train.local-steps", "privacy.unit", "privacy.noise", "privacy.delta"}


@dataclass(frozen=True)
class Values:
    """A list of values, as `--set` takes them."""

    listed: tuple[str, ...]

    def at(self, position: float) -> str:
        """Return the value at a position in [0, 1)."""
        return self.listed[int(position * len(self.listed))]

    def is_end(self, value: str) -> bool:
        """Return whether better values may lie beyond this one: words have no order, and no value is below 0."""
        numbers = [_number(one) for one in self.listed]
        known = [number for number in numbers if number is not None]
        return len(known) == len(numbers) > 1 and _number(value) in {min(known), max(known)} - {0.0}


@dataclass(frozen=True)
class Range:
    """The numbers between two, uniform or log-uniform; integers if both ends are."""

    low: float
    high: float
    log: bool
    whole: bool

    def at(self, position: float) -> str:
        """Return the number at a position in [0, 1), with six digits; integers are rounded down."""
        low, high = self.low, self.high + self.whole
        if self.log:
            number = math.exp(math.log(low) + position * (math.log(high) - math.log(low)))
        else:
            number = low + position * (high - low)
        rounded = math.floor(number) if self.whole else float(f"{number:.6g}")
        return str(min(max(rounded, self._end(low)), self._end(self.high)))  # rounding may leave the range

    def _end(self, number: float) -> float:
        return int(number) if self.whole else number

    def is_end(self, value: str) -> bool:
        """Return whether the value is within a twentieth of the range from an end."""
        number = _number(value)
        assert number is not None
        low, high, at = (math.log(one) if self.log else one for one in (self.low, self.high, number))
        return min(at - low, high - at) < (high - low) / 20


@dataclass(frozen=True)
class Dimension:
    """A searched key."""

    method: str | None  # that it applies to; None for all
    key: str
    values: Values | Range

    def concerns(self, name: str) -> bool:
        """Return whether the key applies to this method, given with its switches."""
        return self.method in _scopes(name)


def _scopes(name: str) -> tuple[str | None, ...]:
    """Return what a dimension of this method may name: its name with switches, its name alone, none; closest first."""
    return name, read_switches(name)[0], None


def read_dimension(text: str) -> Dimension:
    found = _DIMENSION.fullmatch(text)
    if found is None:
        raise InputError(
            f"--search {text!r} is not of the form key=values, such as train.lr=0.003,0.01,0.03 or "
            "train.lr=0.001..0.1:log; for one method alone: fedavg@train.lr=…"
        )
    key = spelt_key(found["key"])
    table = key.partition(".")[0]
    method = found["method"] or (table if table in TABLES else None)
    return Dimension(method, key, _read_values(text, found["values"]))


def spelt_key(typed: str) -> str:
    """Return a dotted key as files spell it: train.batch-size for train.batch_size."""
    names: list[str] = []
    inner: Any = read_settings([f"{typed}=0"])
    while isinstance(inner, dict):
        ((name, inner),) = inner.items()
        names.append(name)
    return ".".join(names)


def _read_values(text: str, right: str) -> Values | Range:
    found = _RANGE.fullmatch(right)
    ends = [] if found is None else [_number(found["low"]), _number(found["high"])]
    if found is None or ends == [None, None]:  # two dots may also be part of a path or a text
        return _listed(text, right)
    low, high = ends
    if low is None or high is None or not -math.inf < low < high < math.inf or (found["log"] and low <= 0):
        raise InputError(f"--search {text}: a range is low..high with low < high, and with :log low > 0.")
    return Range(low, high, bool(found["log"]), whole=isinstance(low, int) and isinstance(high, int))


def _listed(text: str, right: str) -> Values:
    listed = tuple(dict.fromkeys(split_list(right)))
    if not listed:
        raise InputError(f"--search {text}: give at least one value.")
    return Values(listed)


def refuse_unusable(dimensions: Sequence[Dimension], methods: Sequence[str]) -> None:
    """Refuse keys that apply to no method of the search, are named twice, or cannot be searched."""
    for number, one in enumerate(dimensions):
        _refuse_fixed(f"--search {one.key}", one.key, _FIXED | _CHOSEN)
        if not any(one.concerns(name) for name in methods):
            raise InputError(
                f"--search {one.key} is for method {one.method!r}, which is not among {', '.join(methods)}."
            )
        if any((one.key, one.method) == (other.key, other.method) for other in dimensions[:number]):
            raise InputError(f"--search names {one.key} twice.")
    for name in methods:
        searched = {one.key for one in dimensions_of(name, dimensions)}
        for switch in read_switches(name)[1]:
            key = spelt_key(switch.partition("=")[0])
            _refuse_fixed(name, key, _FIXED)
            if key in searched:
                raise InputError(f"{name} sets {key}, so --search {key} cannot vary it: remove one of them.")


def _refuse_fixed(where: str, key: str, fixed: Set[str]) -> None:
    """Refuse a key that is one of `fixed`, is in a table of them, or is a table that contains one."""
    if any(f"{key}.".startswith(f"{one}.") or one.startswith(f"{key}.") for one in fixed):
        raise InputError(
            f"{where}: {key} must be the same in all trials, or scores could not be compared; set it with --set, or "
            "search once for each of its values."
        )


def dimensions_of(name: str, dimensions: Sequence[Dimension]) -> list[Dimension]:
    """Return the dimensions of one method, each key once: the closest scope wins."""
    scoped = [{one.key: one for one in dimensions if one.method == scope} for scope in dict.fromkeys(_scopes(name))]
    chosen = {key: one for level in reversed(scoped) for key, one in level.items()}
    return [one for one in dimensions if chosen.get(one.key) is one]


def _number(text: str) -> float | int | None:
    value = read_settings([f"value={text}"])["value"]
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
