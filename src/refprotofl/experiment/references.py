"""Where an experiment names code that is not ours: `module:attribute`, which is imported when it is used."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from refprotofl.core.errors import InputError
from refprotofl.core.user_code import is_reference

Reference = tuple[str, str]  # the dotted key, and what it says

_DATA_ONLY = ("input",)  # names of classes may look like anything
_OURS = ("hf:", "open_clip:")


def references(plain: Mapping[str, Any], prefix: str = "") -> list[Reference]:
    """All of them in nested plain values, as an experiment's `plain()` gives them."""
    return list(dict.fromkeys(_walk(plain, prefix)))


def _walk(value: object, key: str) -> Iterator[Reference]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if key or name not in _DATA_ONLY:
                yield from _walk(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _walk(inner, key)
    elif isinstance(value, str) and is_reference(value) and not value.startswith(_OURS):
        yield key, value


def refuse_code(named: Sequence[Reference], where: object, *, trusted: bool) -> None:
    """InputError if code would be imported that nobody has said to trust."""
    if named and not trusted:
        listed = ", ".join(f"{key} = {name!r}" for key, name in named)
        raise InputError(
            f"{where} names code that would be imported and run: {listed}. If you trust whoever wrote it, add "
            "--trust-code (in Python: trust_code=True)."
        )
