"""Federated learning methods by name, and the public names of which a method of one's own is made.

A built-in method is a folder of `builtin/`: its `__init__` declares it (a subclass of `Method` with options, parts,
cost and notes), and the module named like the method holds its server and client; larger methods have one module for
each topic. The two are apart because the declaration of every method is read whenever an experiment is, for its keys
and its hash, and must load without torch, which takes seconds. For the same reason the names here are imported when
they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refprotofl.core.parts import ADAPTER, ALL, BODY, HEAD
    from refprotofl.experiment.keys import Table
    from refprotofl.methods.aggregators.mean import Mean
    from refprotofl.methods.base.aggregation import Aggregator, Upload, aggregate_uploads, apply_update
    from refprotofl.methods.base.client import Client, ClientContext
    from refprotofl.methods.base.cohort import Cohort
    from refprotofl.methods.base.compressor import Compressor
    from refprotofl.methods.base.samples import Samples
    from refprotofl.methods.base.schema import (
        Dense,
        MessageSchema,
        Real,
        Refused,
        Scope,
        SparseVector,
        ValidatedMessage,
        Whole,
        declare,
    )
    from refprotofl.methods.base.server import Server, ServerContext
    from refprotofl.methods.base.training import GradHook, TrainResult, cross_entropy, train
    from refprotofl.methods.builtin.fedavg.fedavg import FedAvgClient, FedAvgServer
    from refprotofl.methods.catalogue import METHODS, fill_options, find_method
    from refprotofl.methods.common.prototypes import class_means
    from refprotofl.methods.declaration import Cost, Method, Releases, SampleUse

_HOMES = {
    "ADAPTER": "refprotofl.core.parts",
    "ALL": "refprotofl.core.parts",
    "BODY": "refprotofl.core.parts",
    "HEAD": "refprotofl.core.parts",
    "METHODS": "refprotofl.methods.catalogue",
    "Client": "refprotofl.methods.base.client",
    "Cohort": "refprotofl.methods.base.cohort",
    "Cost": "refprotofl.methods.declaration",
    "Dense": "refprotofl.methods.base.schema",
    "ServerContext": "refprotofl.methods.base.server",
    "MessageSchema": "refprotofl.methods.base.schema",
    "FedAvgClient": "refprotofl.methods.builtin.fedavg.fedavg",
    "FedAvgServer": "refprotofl.methods.builtin.fedavg.fedavg",
    "Compressor": "refprotofl.methods.base.compressor",
    "Mean": "refprotofl.methods.aggregators.mean",
    "Method": "refprotofl.methods.declaration",
    "Real": "refprotofl.methods.base.schema",
    "ValidatedMessage": "refprotofl.methods.base.schema",
    "Refused": "refprotofl.methods.base.schema",
    "Releases": "refprotofl.methods.declaration",
    "Aggregator": "refprotofl.methods.base.aggregation",
    "SampleUse": "refprotofl.methods.declaration",
    "Samples": "refprotofl.methods.base.samples",
    "Scope": "refprotofl.methods.base.schema",
    "ClientContext": "refprotofl.methods.base.client",
    "Server": "refprotofl.methods.base.server",
    "SparseVector": "refprotofl.methods.base.schema",
    "Table": "refprotofl.experiment.keys",
    "Upload": "refprotofl.methods.base.aggregation",
    "Whole": "refprotofl.methods.base.schema",
    "class_means": "refprotofl.methods.common.prototypes",
    "declare": "refprotofl.methods.base.schema",
    "fill_options": "refprotofl.methods.catalogue",
    "find_method": "refprotofl.methods.catalogue",
    "GradHook": "refprotofl.methods.base.training",
    "TrainResult": "refprotofl.methods.base.training",
    "cross_entropy": "refprotofl.methods.base.training",
    "aggregate_uploads": "refprotofl.methods.base.aggregation",
    "apply_update": "refprotofl.methods.base.aggregation",
    "train": "refprotofl.methods.base.training",
}

__all__ = [
    "ADAPTER",
    "ALL",
    "BODY",
    "HEAD",
    "METHODS",
    "Aggregator",
    "Client",
    "ClientContext",
    "Cohort",
    "Compressor",
    "Cost",
    "Dense",
    "FedAvgClient",
    "FedAvgServer",
    "GradHook",
    "Mean",
    "MessageSchema",
    "Method",
    "Real",
    "Refused",
    "Releases",
    "SampleUse",
    "Samples",
    "Scope",
    "Server",
    "ServerContext",
    "SparseVector",
    "Table",
    "TrainResult",
    "Upload",
    "ValidatedMessage",
    "Whole",
    "aggregate_uploads",
    "apply_update",
    "class_means",
    "cross_entropy",
    "declare",
    "fill_options",
    "find_method",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
