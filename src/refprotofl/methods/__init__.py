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
    from refprotofl.methods.core.client import Client, Seat
    from refprotofl.methods.core.cohort import Cohort
    from refprotofl.methods.core.refusal import Refused
    from refprotofl.methods.core.samples import Samples
    from refprotofl.methods.core.server import Desk, Server
    from refprotofl.methods.core.training import train
    from refprotofl.methods.declaration import Cost, Declaration, Method

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
    "Desk": "refprotofl.methods.core.server",
    "FedAvgClient": "refprotofl.methods.builtin.fedavg.fedavg",
    "FedAvgServer": "refprotofl.methods.builtin.fedavg.fedavg",
    "Method": "refprotofl.methods.declaration",
    "Refused": "refprotofl.methods.core.refusal",
    "Samples": "refprotofl.methods.core.samples",
    "Seat": "refprotofl.methods.core.client",
    "Server": "refprotofl.methods.core.server",
    "Table": "refprotofl.keys.table",
    "fill_options": "refprotofl.methods.catalogue",
    "find_method": "refprotofl.methods.catalogue",
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
    "Desk",
    "FedAvgClient",
    "FedAvgServer",
    "Method",
    "Refused",
    "Samples",
    "Seat",
    "Server",
    "Table",
    "fill_options",
    "find_method",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
