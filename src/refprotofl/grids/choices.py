"""The methods that a comparison is asked for: `refprotofl,whole = fedavg:share=full,my_module:Mine:own.trim=0.2`.

Commas are between methods and colons before switches. Both may also be part of a value: a switch begins only where a
key and `=` follow, and nothing within quotes or brackets separates. What a row is to be called stands before it.
"""

import re

from refprotofl.errors import InputError

_QUOTED_OR_ONE = re.compile(r"""(?<!\w)"(?:\\.|[^"\\])*"|(?<!\w)'[^']*'|.""", re.DOTALL)
_COMMA = re.compile(r",")
_BEFORE_SWITCH = re.compile(r":(?=\s*[A-Za-z][\w.-]*\s*=)")


def split_list(text: str) -> list[str]:
    """Methods, each as it is asked for, switches included; or values, of which a list or a quoted text is one."""
    return [one for one in _split(text, _COMMA) if one]


def read_name(asked: str) -> tuple[str, str]:
    """What a row is called, in quotes or without, and the method with its switches, which is also what it is called."""
    before, sign, _ = _blank_nested(asked).partition("=")
    if not sign or ":" in before:  # that = belongs to a switch
        return asked, asked
    name, method = asked[: len(before)].strip(), asked[len(before) + 1 :].strip()
    if len(name) > 1 and name[0] in "\"'" and _QUOTED_OR_ONE.fullmatch(name):  # all of it in one pair of quotes
        name = name[1:-1].replace('\\"', '"').strip()
    if not name or not method:
        raise InputError(f"{asked}: a name stands before = and a method behind it, as in 'whole = fedavg:share=full'.")
    return name, method


def read_switches(name: str) -> tuple[str, list[str]]:
    """The method itself, which may be `module:Class`, and its switches `key=value`."""
    method, *switches = _split(name, _BEFORE_SWITCH)
    return method, switches


def key_of(setting: str) -> str:
    """The dotted key of `key=value`, as the documentation spells it."""
    return setting.partition("=")[0].strip().replace("_", "-")


def _split(text: str, separator: re.Pattern[str]) -> list[str]:
    visible = _blank_nested(text)
    places = [match.start() for match in separator.finditer(visible)]
    pairs = zip([-1, *places], [*places, len(text)], strict=True)
    return [text[before + 1 : after].strip() for before, after in pairs]


def _blank_nested(text: str) -> str:
    """As long as the text, without what stands in quotes or brackets."""
    visible, depth = [], 0
    for piece in _QUOTED_OR_ONE.findall(text):
        depth += piece in ("[", "{")
        visible.append("_" * len(piece) if depth or len(piece) > 1 else piece)
        depth -= depth > 0 and piece in ("]", "}")
    return "".join(visible)
