"""Kinds of inputs by name: each module of this folder is one."""

from functools import cache

from refprotofl.core.discovery import find_class, names_in
from refprotofl.core.inputs import InputKind

IMAGE = "image"
NAMES = names_in(__path__, first=IMAGE)


@cache
def find_kind(name: str) -> InputKind:
    kind: type[InputKind] = find_class(name, __name__, "refprotofl.core.inputs:InputKind", "data.kind")
    return kind()
