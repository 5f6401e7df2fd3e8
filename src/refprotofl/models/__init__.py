"""Models: `build_model(experiment)` gives the same initial weights on every client."""

from refprotofl.models.build import build_model
from refprotofl.models.split import SplitModel

__all__ = ["SplitModel", "build_model"]
