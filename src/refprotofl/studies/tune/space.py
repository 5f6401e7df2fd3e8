"""What is searched: keys with the values they may take, as a user types them.

`train.lr=0.003,0.01,0.03` lists values; `train.lr=0.001..0.1:log` is a range, which only draws can search. A method's
own key, such as `fedprox.mu`, concerns that method alone, and so does any key after its name: `fedavg@train.lr=…`.
"""

import math
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from refprotofl.core.errors import InputError
from refprotofl.experiment.presets import read_settings
from refprotofl.methods.catalogue import TABLES
from refprotofl.studies.cells import read_switches, split_list

_DIMENSION = re.compile(r"(?:(?P<method>[^@]+)@)?(?P<key>[A-Za-z][\w.-]*)\s*=\s*(?P<values>\S.*?)\s*")
_RANGE = re.compile(r"(?P<low>.+?)\.\.(?P<high>.+?)(?P<log>:log)?")

# What a score is taken of, and what a run costs: the same in all trials of all methods, or they could not be compared.
_FIXED = {
    *("method", "rounds", "seed", "clients", "fraction", "partition", "alpha", "min-size", "validation", "evaluate"),
    *("dataset", "train-limit", "resize", "crop", "test", "input", "dropout", "attack"),
    *("public.per-class", "public.coverage", "public.classes", "public.dataset"),
    *("device", "numerics", "deadline", "keep-checkpoints", "min-replies", "max-samples"),
}
# The same in all trials of a method, whose name may say what it is: a search would end at the most work or no privacy.
_CHOSEN = {"train.local-epochs", "privacy.unit", "privacy.noise", "privacy.delta"}


@dataclass(frozen=True)
class Values:
    """A list of values, each as `--set` takes it."""

    listed: tuple[str, ...]

    def at(self, place: float) -> str:
        """The value at a place from 0 to below 1."""
        return self.listed[int(place * len(self.listed))]

    def is_end(self, value: str) -> bool:
        """Whether a search that ends here may have stopped too early; words have no order."""
        numbers = [_number(one) for one in self.listed]
        known = [number for number in numbers if number is not None]
        return len(known) == len(numbers) > 1 and _number(value) in (min(known), max(known))


@dataclass(frozen=True)
class Range:
    """All numbers between two, evenly or evenly in the logarithm; whole ones if both ends are."""

    low: float
    high: float
    log: bool
    whole: bool

    def at(self, place: float) -> str:
        """The number at a place from 0 to below 1, with six digits; a whole one stands for all up to the next."""
        low, high = self.low, self.high + self.whole
        if self.log:
            number = math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
        else:
            number = low + place * (high - low)
        rounded = math.floor(number) if self.whole else float(f"{number:.6g}")
        return str(min(max(rounded, self._end(low)), self._end(self.high)))  # rounding may lead out of it

    def _end(self, number: float) -> float:
        return int(number) if self.whole else number

    def is_end(self, value: str) -> bool:
        """Within a twentieth of the range's width."""
        number = _number(value)
        assert number is not None
        low, high, at = (math.log(one) if self.log else one for one in (self.low, self.high, number))
        return min(at - low, high - at) < (high - low) / 20


@dataclass(frozen=True)
class Dimension:
    """A key that is searched."""

    method: str | None  # whom it concerns; None for all
    key: str
    values: Values | Range

    def concerns(self, name: str) -> bool:
        """Whether it is for this method, as it was asked for."""
        return self.method in _called(name)


def _called(name: str) -> tuple[str | None, ...]:
    """What a method is meant by: its name with its switches, its name alone, nothing for all; the closest first."""
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
    """A dotted key as files have it: train.batch-size for train.batch_size."""
    names: list[str] = []
    inner: Any = read_settings([f"{typed}=0"])
    while isinstance(inner, dict):
        ((name, inner),) = inner.items()
        names.append(name)
    return ".".join(names)


def _read_values(text: str, right: str) -> Values | Range:
    found = _RANGE.fullmatch(right)
    ends = [] if found is None else [_number(found["low"]), _number(found["high"])]
    if found is None or ends == [None, None]:  # two points may also be part of a path or a text
        return _listed(text, right)
    low, high = ends
    if low is None or high is None or not -math.inf < low < high < math.inf or (found["log"] and low <= 0):
        raise InputError(f"--search {text}: a range is low..high with low < high, and with :log low > 0.")
    return Range(low, high, bool(found["log"]), whole=isinstance(low, int) and isinstance(high, int))


def _listed(text: str, right: str) -> Values:
    listed = tuple(dict.fromkeys(split_list(right)))
    if not listed:
        raise InputError(f"--search {text}: there is no value.")
    return Values(listed)


def refuse_unusable(dimensions: Sequence[Dimension], methods: Sequence[str]) -> None:
    """Keys that are for no method of the search, that are named twice, or that cannot be searched."""
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
                raise InputError(f"{name} says what {key} is, so --search {key} cannot vary it: remove one of them.")


def _refuse_fixed(where: str, key: str, fixed: Set[str]) -> None:
    """A key of them, one in a table of them, or a table that holds one."""
    if any(f"{key}.".startswith(f"{one}.") or one.startswith(f"{key}.") for one in fixed):
        raise InputError(
            f"{where}: a search needs {key} to be the same everywhere, or scores could not be compared; set it with "
            "--set, or search once for each of its values."
        )


def dimensions_of(name: str, dimensions: Sequence[Dimension]) -> list[Dimension]:
    """Those of one method, each key once: what is said of it alone takes the place of what is said of all."""
    meant = [{one.key: one for one in dimensions if one.method == called} for called in dict.fromkeys(_called(name))]
    chosen = {key: one for level in reversed(meant) for key, one in level.items()}
    return [one for one in dimensions if chosen.get(one.key) is one]


def _number(text: str) -> float | int | None:
    value = read_settings([f"value={text}"])["value"]
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
