"""What is searched: keys with the values they may take, as a user types them.

`train.lr=0.003,0.01,0.03` lists values; `train.lr=0.001..0.1:log` is a range, which only draws can search. A method's
own key, such as `fedprox.mu`, concerns that method alone, and so does any key after its name: `fedavg@train.lr=…`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from refprotofl.errors import InputError
from refprotofl.experiment.presets import read_settings
from refprotofl.grids.choices import read_switches, split_list
from refprotofl.methods.catalogue import TABLES

_DIMENSION = re.compile(r"(?:(?P<method>[^@]+)@)?(?P<key>[A-Za-z][\w.-]*)\s*=\s*(?P<values>\S.*?)\s*")
_RANGE = re.compile(r"(?P<low>[^.].*?)\.\.(?P<high>.+?)(?P<log>:log)?")


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
        if self.log:
            number = math.exp(math.log(self.low) + place * (math.log(self.high) - math.log(self.low)))
        else:
            number = self.low + place * (self.high - self.low)
        return str(round(number)) if self.whole else f"{number:.6g}"

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
        """A method as it was asked for, switches included, or only its name."""
        return self.method in (None, name, read_switches(name)[0])


def read_dimension(text: str) -> Dimension:
    found = _DIMENSION.fullmatch(text)
    if found is None:
        raise InputError(
            f"--search {text!r} is not of the form key=values, such as train.lr=0.003,0.01,0.03 or "
            "train.lr=0.001..0.1:log; for one method alone: fedavg@train.lr=…"
        )
    table = found["key"].partition(".")[0]
    method = found["method"] or (table if table in TABLES else None)
    return Dimension(method, found["key"], _read_values(text, found["values"]))


def _read_values(text: str, right: str) -> Values | Range:
    found = _RANGE.fullmatch(right)
    if found is None:
        return Values(tuple(dict.fromkeys(split_list(right))))
    low, high = _number(found["low"]), _number(found["high"])
    if low is None or high is None or not low < high or (found["log"] and low <= 0):
        raise InputError(f"--search {text}: a range is low..high with low < high, and with :log low > 0.")
    whole = found["low"].isdecimal() and found["high"].isdecimal()
    return Range(low, high, bool(found["log"]), whole)


def refuse_unknown(dimensions: Sequence[Dimension], methods: Sequence[str]) -> None:
    """Keys that no method of the search has, and keys that are searched twice."""
    for number, one in enumerate(dimensions):
        if not any(one.concerns(name) for name in methods):
            raise InputError(f"--search {one.key} is for method {one.method!r}, which is not among {list(methods)}.")
        for other in dimensions[:number]:
            if one.key == other.key and one.method == other.method:
                raise InputError(f"--search names {one.key} twice.")


def dimensions_of(name: str, dimensions: Sequence[Dimension]) -> list[Dimension]:
    """Those of one method; what is said of it alone takes the place of what is said of all."""
    own = [one for one in dimensions if one.concerns(name)]
    named = {one.key for one in own if one.method is not None}
    return [one for one in own if one.method is not None or one.key not in named]


def _number(text: str) -> float | None:
    value = read_settings([f"value={text}"])["value"]
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
