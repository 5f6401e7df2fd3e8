"""Methods by name, and what a method of one's own is made of.

The names are imported when they are used: declarations and options load without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refprotofl.basics.parts import ADAPTER, ALL, BODY, HEAD
    from refprotofl.keys.table import Table
    from refprotofl.methods.builtin.fedavg.fedavg import FedAvgClient, FedAvgServer
    from refprotofl.methods.catalogue import METHODS, fill_options, find_method
    from refprotofl.methods.common.private_means import class_means
    from refprotofl.methods.core.aggregation import Mean, Rule, Upload, fold, moved
    from refprotofl.methods.core.client import Client, Seat
    from refprotofl.methods.core.cohort import Cohort
    from refprotofl.methods.core.fields import Dense, Exchange, Real, Received, SparseVector, Whole
    from refprotofl.methods.core.messages import Scope, declare
    from refprotofl.methods.core.refusal import Refused
    from refprotofl.methods.core.samples import Samples
    from refprotofl.methods.core.server import Desk, Server
    from refprotofl.methods.core.training import train
    from refprotofl.methods.declaration import Cost, Declaration, Method, Releases, SampleUse

_PLACES = {
    "ADAPTER": "refprotofl.basics.parts",
    "ALL": "refprotofl.basics.parts",
    "BODY": "refprotofl.basics.parts",
    "HEAD": "refprotofl.basics.parts",
    "METHODS": "refprotofl.methods.catalogue",
    "Client": "refprotofl.methods.core.client",
    "Cohort": "refprotofl.methods.core.cohort",
    "Cost": "refprotofl.methods.declaration",
    "Declaration": "refprotofl.methods.declaration",
    "Dense": "refprotofl.methods.core.fields",
    "Desk": "refprotofl.methods.core.server",
    "Exchange": "refprotofl.methods.core.fields",
    "FedAvgClient": "refprotofl.methods.builtin.fedavg.fedavg",
    "FedAvgServer": "refprotofl.methods.builtin.fedavg.fedavg",
    "Mean": "refprotofl.methods.core.aggregation",
    "Method": "refprotofl.methods.declaration",
    "Real": "refprotofl.methods.core.fields",
    "Received": "refprotofl.methods.core.fields",
    "Refused": "refprotofl.methods.core.refusal",
    "Releases": "refprotofl.methods.declaration",
    "Rule": "refprotofl.methods.core.aggregation",
    "SampleUse": "refprotofl.methods.declaration",
    "Samples": "refprotofl.methods.core.samples",
    "Scope": "refprotofl.methods.core.messages",
    "Seat": "refprotofl.methods.core.client",
    "Server": "refprotofl.methods.core.server",
    "SparseVector": "refprotofl.methods.core.fields",
    "Table": "refprotofl.keys.table",
    "Upload": "refprotofl.methods.core.aggregation",
    "Whole": "refprotofl.methods.core.fields",
    "class_means": "refprotofl.methods.common.private_means",
    "declare": "refprotofl.methods.core.messages",
    "fill_options": "refprotofl.methods.catalogue",
    "find_method": "refprotofl.methods.catalogue",
    "fold": "refprotofl.methods.core.aggregation",
    "moved": "refprotofl.methods.core.aggregation",
    "train": "refprotofl.methods.core.training",
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
