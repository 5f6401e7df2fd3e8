"""Methods by name, and what a method of one's own is made of."""

from refprotofl.methods.base import Client, Cohort, Refused, Server
from refprotofl.methods.fedavg import FedAvgClient, FedAvgServer
from refprotofl.methods.method import Method, fill_options
from refprotofl.methods.registry import METHODS, find_method
from refprotofl.methods.training import Samples, train
from refprotofl.models import ADAPTER, ALL, BODY, HEAD

__all__ = [
    "ADAPTER",
    "ALL",
    "BODY",
    "HEAD",
    "METHODS",
    "Client",
    "Cohort",
    "FedAvgClient",
    "FedAvgServer",
    "Method",
    "Refused",
    "Samples",
    "Server",
    "fill_options",
    "find_method",
    "train",
]
