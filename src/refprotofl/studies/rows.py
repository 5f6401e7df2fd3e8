"""Rows of a study: methods with their switches, and the names that tables call them by.

As a user types them: `refprotofl, lg = fedavg:share=adapter, my_module:Mine:own.trim=0.2`. Commas separate methods and
colons separate switches. Both may also be part of a value: a switch begins only where a key and `=` follow, and nothing
inside quotes or brackets separates.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from refprotofl.core import InputError


@dataclass(frozen=True)
class Row:
    """A method with its switches, under a name."""

    name: str
    asked: str  # the method with its switches
    settings: tuple[str, ...] = ()  # of this row alone; they override those of the study, and switches override them

    @property
    def method(self) -> str:
        return read_switches(self.asked)[0]

    @property
    def switched(self) -> set[str]:
        """The keys that its switches set."""
        return {key_of(switch) for switch in read_switches(self.asked)[1]}


_QUOTED_OR_ONE = re.compile(r"""(?<!\w)"(?:\\.|[^"\\])*"|(?<!\w)'[^']*'|.""", re.DOTALL)
_COMMA = re.compile(r",")
_BEFORE_SWITCH = re.compile(r":(?=\s*[A-Za-z][\w.-]*\s*=)")


def split_list(text: str) -> list[str]:
    """Return the parts of a comma-separated list: methods with switches, or values."""
    return [one for one in _split(text, _COMMA) if one]


def read_row(text: str) -> Row:
    """Read `name = method:switches`; without a name, the row is called what was typed. Quotes around a name go."""
    before, sign, _ = _blank_nested(text).partition("=")
    if not sign or ":" in before:  # that = belongs to a switch
        return Row(text, text)
    name, method = text[: len(before)].strip(), text[len(before) + 1 :].strip()
    if len(name) > 1 and name[0] in "\"'" and _QUOTED_OR_ONE.fullmatch(name):  # all of it in one pair of quotes
        name = name[1:-1].replace('\\"', '"').strip()
    if not name or not method:
        raise InputError(f"{text}: write a name, = and a method, as in 'lg = fedavg:share=adapter'.")
    return Row(name, method)


def check_rows(rows: Sequence[Row], seeds: Sequence[int]) -> None:
    """InputError unless there are rows and seeds, each once."""
    if not rows or not seeds:
        raise InputError("A study needs at least one method and one seed.")
    for kind, given in (("method", [row.name for row in rows]), ("seed", [str(seed) for seed in seeds])):
        repeated = [one for one in dict.fromkeys(given) if given.count(one) > 1]
        if repeated:
            raise InputError(f"A {kind} is named twice: {', '.join(repeated)}.")


def read_switches(asked: str) -> tuple[str, list[str]]:
    """Return the method itself, which may be `module:Class`, and its switches `key=value`."""
    method, *switches = _split(asked, _BEFORE_SWITCH)
    return method, switches


def best_fit(asked: str, tuned: Collection[str]) -> str | None:
    """Return the entry that has most of the row's switches and no others."""
    method, switches = read_switches(asked)
    fits: dict[int, str] = {}
    for name in tuned:
        known, needed = read_switches(name)
        if known == method and {*needed} <= {*switches}:
            fits[len(needed)] = name
    return fits[max(fits)] if fits else None


def tuned_settings(asked: str, tuned: Mapping[str, Sequence[str]], fixed: Collection[str]) -> tuple[str, ...]:
    """Return the settings that a search chose for a row, without the keys in `fixed`."""
    name = best_fit(asked, tuned)
    return tuple(one for one in (tuned[name] if name else ()) if key_of(one) not in fixed)


def key_of(setting: str) -> str:
    """Return the dotted key of `key=value`, as the documentation spells it."""
    return setting.partition("=")[0].strip().replace("_", "-")


def _split(text: str, separator: re.Pattern[str]) -> list[str]:
    visible = _blank_nested(text)
    positions = [match.start() for match in separator.finditer(visible)]
    pairs = zip([-1, *positions], [*positions, len(text)], strict=True)
    return [text[before + 1 : after].strip() for before, after in pairs]


def _blank_nested(text: str) -> str:
    """Return the text with everything inside quotes or brackets replaced by `_`, at the same length."""
    visible, depth = [], 0
    for piece in _QUOTED_OR_ONE.findall(text):
        depth += piece in ("[", "{")
        visible.append("_" * len(piece) if depth or len(piece) > 1 else piece)
        depth -= depth > 0 and piece in ("]", "}")
    return "".join(visible)
