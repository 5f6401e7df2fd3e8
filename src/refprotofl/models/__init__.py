"""Models: `build_model(experiment)` gives the same initial weights on every client."""

from refprotofl.models.build import build_model
from refprotofl.models.split import ADAPTER, ALL, BODY, Parts, SplitModel

__all__ = ["ADAPTER", "ALL", "BODY", "Parts", "SplitModel", "build_model"]
