"""The parts of a model by name. The method decides which of them are shared."""

from typing import Literal

Part = Literal["backbone", "feature", "head"]
Parts = tuple[Part, ...]

ALL: Parts = ("backbone", "feature", "head")
ADAPTER: Parts = ("feature", "head")
BODY: Parts = ("backbone", "feature")
HEAD: Parts = ("head",)
