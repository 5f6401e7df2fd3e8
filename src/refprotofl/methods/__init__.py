"""Methods by name, and what a method of one's own is made of.

The names are imported when they are used: declarations and options load without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refprotofl.core.parts import ADAPTER, ALL, BODY, HEAD
    from refprotofl.experiment.keys import Table
    from refprotofl.methods.aggregators.aggregation import Mean, Rule, Upload, fold, moved
    from refprotofl.methods.base.client import Client, Seat
    from refprotofl.methods.base.cohort import Cohort
    from refprotofl.methods.base.samples import Samples
    from refprotofl.methods.base.schema import (
        Dense,
        Exchange,
        Real,
        Received,
        Refused,
        Scope,
        SparseVector,
        Whole,
        declare,
    )
    from refprotofl.methods.base.server import Desk, Server
    from refprotofl.methods.base.training import train
    from refprotofl.methods.builtin.fedavg.fedavg import FedAvgClient, FedAvgServer
    from refprotofl.methods.catalogue import METHODS, fill_options, find_method
    from refprotofl.methods.common.prototypes import class_means
    from refprotofl.methods.declaration import Cost, Declaration, Method, Releases, SampleUse

_PLACES = {
    "ADAPTER": "refprotofl.core.parts",
    "ALL": "refprotofl.core.parts",
    "BODY": "refprotofl.core.parts",
    "HEAD": "refprotofl.core.parts",
    "METHODS": "refprotofl.methods.catalogue",
    "Client": "refprotofl.methods.base.client",
    "Cohort": "refprotofl.methods.base.cohort",
    "Cost": "refprotofl.methods.declaration",
    "Declaration": "refprotofl.methods.declaration",
    "Dense": "refprotofl.methods.base.schema",
    "Desk": "refprotofl.methods.base.server",
    "Exchange": "refprotofl.methods.base.schema",
    "FedAvgClient": "refprotofl.methods.builtin.fedavg.fedavg",
    "FedAvgServer": "refprotofl.methods.builtin.fedavg.fedavg",
    "Mean": "refprotofl.methods.aggregators.aggregation",
    "Method": "refprotofl.methods.declaration",
    "Real": "refprotofl.methods.base.schema",
    "Received": "refprotofl.methods.base.schema",
    "Refused": "refprotofl.methods.base.schema",
    "Releases": "refprotofl.methods.declaration",
    "Rule": "refprotofl.methods.aggregators.aggregation",
    "SampleUse": "refprotofl.methods.declaration",
    "Samples": "refprotofl.methods.base.samples",
    "Scope": "refprotofl.methods.base.schema",
    "Seat": "refprotofl.methods.base.client",
    "Server": "refprotofl.methods.base.server",
    "SparseVector": "refprotofl.methods.base.schema",
    "Table": "refprotofl.experiment.keys",
    "Upload": "refprotofl.methods.aggregators.aggregation",
    "Whole": "refprotofl.methods.base.schema",
    "class_means": "refprotofl.methods.common.prototypes",
    "declare": "refprotofl.methods.base.schema",
    "fill_options": "refprotofl.methods.catalogue",
    "find_method": "refprotofl.methods.catalogue",
    "fold": "refprotofl.methods.aggregators.aggregation",
    "moved": "refprotofl.methods.aggregators.aggregation",
    "train": "refprotofl.methods.base.training",
}

__all__ = [
    "ADAPTER",
    "ALL",
    "BODY",
    "HEAD",
    "METHODS",
    "Client",
    "Cohort",
    "Cost",
    "Declaration",
    "Dense",
    "Desk",
    "Exchange",
    "FedAvgClient",
    "FedAvgServer",
    "Mean",
    "Method",
    "Real",
    "Received",
    "Refused",
    "Releases",
    "Rule",
    "SampleUse",
    "Samples",
    "Scope",
    "Seat",
    "Server",
    "SparseVector",
    "Table",
    "Upload",
    "Whole",
    "class_means",
    "declare",
    "fill_options",
    "find_method",
    "fold",
    "moved",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
