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
    from refprotofl.core import ADAPTER, ALL, BODY, HEAD, WITHOUT_NORMS, Parts
    from refprotofl.experiment.keys import Table
    from refprotofl.methods.aggregators.mean import Mean
    from refprotofl.methods.base.aggregation import Aggregator, Normalise, Upload, aggregate_uploads, apply_update
    from refprotofl.methods.base.augmentation import augmenter
    from refprotofl.methods.base.broadcast import StepDownlink, held, hold
    from refprotofl.methods.base.client import Client, ClientContext
    from refprotofl.methods.base.cohort import Cohort
    from refprotofl.methods.base.compressor import Compressor
    from refprotofl.methods.base.gradients import add_to_gradients, in_turn, proximal_term
    from refprotofl.methods.base.optimisers import GradHook
    from refprotofl.methods.base.samples import Samples
    from refprotofl.methods.base.schema import (
        LOST,
        Dense,
        Either,
        Fields,
        Lost,
        MessageSchema,
        MessageSchemas,
        Real,
        Refused,
        Scope,
        SparseVector,
        ValidatedMessage,
        Whole,
        class_ids,
        declare,
        whole_numbers,
    )
    from refprotofl.methods.base.screening import norm
    from refprotofl.methods.base.server import Server, ServerContext, set_aside
    from refprotofl.methods.base.training import (
        Loss,
        Penalty,
        TrainResult,
        check_alignment,
        classify,
        cross_entropy,
        embed,
        fixed,
        minimise,
        plain_sgd,
        train,
    )
    from refprotofl.methods.builtin.fedavg.fedavg import FedAvgClient, FedAvgServer
    from refprotofl.methods.catalogue import METHODS, fill_options, find_method
    from refprotofl.methods.common.prototypes import class_means
    from refprotofl.methods.declaration import (
        BY_HOLDERS,
        NAMED_BY_SIZE,
        ByShare,
        Cost,
        Method,
        Releases,
        SampleUse,
        SampleUses,
        lazy,
        releases_of_weights,
    )

_NAMES = {  # by module
    "refprotofl.core": "ADAPTER ALL BODY HEAD Parts WITHOUT_NORMS",
    "refprotofl.experiment.keys": "Table",
    "refprotofl.methods.aggregators.mean": "Mean",
    "refprotofl.methods.base.aggregation": "Aggregator Normalise Upload aggregate_uploads apply_update",
    "refprotofl.methods.base.augmentation": "augmenter",
    "refprotofl.methods.base.broadcast": "StepDownlink held hold",
    "refprotofl.methods.base.client": "Client ClientContext",
    "refprotofl.methods.base.cohort": "Cohort",
    "refprotofl.methods.base.compressor": "Compressor",
    "refprotofl.methods.base.gradients": "add_to_gradients in_turn proximal_term",
    "refprotofl.methods.base.optimisers": "GradHook",
    "refprotofl.methods.base.samples": "Samples",
    "refprotofl.methods.base.schema": (
        "Dense Either Fields LOST Lost MessageSchema MessageSchemas Real Refused Scope SparseVector "
        "ValidatedMessage Whole class_ids declare whole_numbers"
    ),
    "refprotofl.methods.base.screening": "norm",
    "refprotofl.methods.base.server": "Server ServerContext set_aside",
    "refprotofl.methods.base.training": (
        "Loss Penalty TrainResult check_alignment classify cross_entropy embed fixed minimise plain_sgd train"
    ),
    "refprotofl.methods.builtin.fedavg.fedavg": "FedAvgClient FedAvgServer",
    "refprotofl.methods.catalogue": "METHODS fill_options find_method",
    "refprotofl.methods.common.prototypes": "class_means",
    "refprotofl.methods.declaration": (
        "BY_HOLDERS ByShare Cost Method NAMED_BY_SIZE Releases SampleUse SampleUses lazy releases_of_weights"
    ),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "ADAPTER",
    "ALL",
    "BODY",
    "BY_HOLDERS",
    "HEAD",
    "LOST",
    "METHODS",
    "NAMED_BY_SIZE",
    "WITHOUT_NORMS",
    "Aggregator",
    "ByShare",
    "Client",
    "ClientContext",
    "Cohort",
    "Compressor",
    "Cost",
    "Dense",
    "Either",
    "FedAvgClient",
    "FedAvgServer",
    "Fields",
    "GradHook",
    "Loss",
    "Lost",
    "Mean",
    "MessageSchema",
    "MessageSchemas",
    "Method",
    "Normalise",
    "Parts",
    "Penalty",
    "Real",
    "Refused",
    "Releases",
    "SampleUse",
    "SampleUses",
    "Samples",
    "Scope",
    "Server",
    "ServerContext",
    "SparseVector",
    "StepDownlink",
    "Table",
    "TrainResult",
    "Upload",
    "ValidatedMessage",
    "Whole",
    "add_to_gradients",
    "aggregate_uploads",
    "apply_update",
    "augmenter",
    "check_alignment",
    "class_ids",
    "class_means",
    "classify",
    "cross_entropy",
    "declare",
    "embed",
    "fill_options",
    "find_method",
    "fixed",
    "held",
    "hold",
    "in_turn",
    "lazy",
    "minimise",
    "norm",
    "plain_sgd",
    "proximal_term",
    "releases_of_weights",
    "set_aside",
    "train",
    "whole_numbers",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
