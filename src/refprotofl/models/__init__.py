"""Models: `build_model(experiment, client=k)` gives the same initial weights in every process."""

from refprotofl.core import ADAPTER, ALL, BODY, HEAD, Parts
from refprotofl.models.build import build_model
from refprotofl.models.input_model import FORWARD_BATCH, no_samples, type_of
from refprotofl.models.kernels import layout_of
from refprotofl.models.precision import check_precision, precision_caveat
from refprotofl.models.split import SplitModel

__all__ = [
    "ADAPTER",
    "ALL",
    "BODY",
    "FORWARD_BATCH",
    "HEAD",
    "Parts",
    "SplitModel",
    "build_model",
    "check_precision",
    "layout_of",
    "no_samples",
    "precision_caveat",
    "type_of",
]
