"""The parts of a model by name. The method decides which of them are shared."""

from typing import Literal

Part = Literal["backbone", "layers", "feature", "head"]  # layers: the backbone without its norm layers
Parts = tuple[Part, ...]

ALL: Parts = ("backbone", "feature", "head")
ADAPTER: Parts = ("feature", "head")
BODY: Parts = ("backbone", "feature")
HEAD: Parts = ("head",)
WITHOUT_NORMS: Parts = ("layers", "feature", "head")


def shares_backbone(parts: Parts) -> bool:
    """Return whether the backbone, or all of it but its norm layers, is among these parts."""
    return "backbone" in parts or "layers" in parts
