"""Federated learning methods by name, and the public names of which a method of one's own is made.

A built-in method is a folder of `builtin/`: its `__init__` declares it (a subclass of `Method` with options, parts,
cost and notes), and the module named like the method holds its server and client; larger methods have one module for
each topic. The two are apart because the declaration of every method is read whenever an experiment is, for its keys
and its hash, and must load without torch, which takes seconds. For the same reason the names here are imported when
they are used.
"""

from typing import TYPE_CHECKING

from refprotofl.core import lazy_names

if TYPE_CHECKING:
    from refprotofl.core import ADAPTER, ALL, BODY, HEAD, WITHOUT_NORMS, Parts
    from refprotofl.experiment import Table
    from refprotofl.methods.aggregators import create_aggregator
    from refprotofl.methods.aggregators.mean import Mean
    from refprotofl.methods.base.aggregation import Aggregator, Normalise, Upload, aggregate_uploads, apply_update
    from refprotofl.methods.base.augmentation import augmenter
    from refprotofl.methods.base.broadcast import StepDownlink, held, hold
    from refprotofl.methods.base.client import Client, ClientContext
    from refprotofl.methods.base.cohort import Cohort
    from refprotofl.methods.base.compressor import CompressedDownlink, Compressor, Draw
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
        is_lost,
        whole_numbers,
    )
    from refprotofl.methods.base.screening import norm
    from refprotofl.methods.base.server import Server, ServerContext, set_aside
    from refprotofl.methods.base.training import (
        Diverged,
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
    from refprotofl.methods.catalogue import (
        METHODS,
        TABLES,
        depends_on_rounds,
        fill_options,
        find_method,
        options_of,
        with_options,
    )
    from refprotofl.methods.common.prototypes import class_means
    from refprotofl.methods.compressors import built_in_compressor, create_compressor
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
    from refprotofl.methods.feedback import FEEDBACKS, Ef21Feedback, ErrorFeedback, Feedback
else:
    __getattr__, __dir__ = lazy_names(__name__)

__all__ = [
    "ADAPTER",
    "ALL",
    "BODY",
    "BY_HOLDERS",
    "FEEDBACKS",
    "HEAD",
    "LOST",
    "METHODS",
    "NAMED_BY_SIZE",
    "TABLES",
    "WITHOUT_NORMS",
    "Aggregator",
    "ByShare",
    "Client",
    "ClientContext",
    "Cohort",
    "CompressedDownlink",
    "Compressor",
    "Cost",
    "Dense",
    "Diverged",
    "Draw",
    "Ef21Feedback",
    "Either",
    "ErrorFeedback",
    "FedAvgClient",
    "FedAvgServer",
    "Feedback",
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
    "built_in_compressor",
    "check_alignment",
    "class_ids",
    "class_means",
    "classify",
    "create_aggregator",
    "create_compressor",
    "cross_entropy",
    "declare",
    "depends_on_rounds",
    "embed",
    "fill_options",
    "find_method",
    "fixed",
    "held",
    "hold",
    "in_turn",
    "is_lost",
    "lazy",
    "minimise",
    "norm",
    "options_of",
    "plain_sgd",
    "proximal_term",
    "releases_of_weights",
    "set_aside",
    "train",
    "whole_numbers",
    "with_options",
]
