"""What a method is to the rest of the package, and where each is found."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from refprotofl.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.methods.base import Client, Server
from refprotofl.methods.fedavg import FedAvgClient, FedAvgServer
from refprotofl.methods.fednova import FedNovaClient, FedNovaServer
from refprotofl.methods.fedprox import FedProxClient
from refprotofl.methods.local import LocalClient, LocalServer
from refprotofl.methods.refprotofl import RefProtoClient, RefProtoServer
from refprotofl.models import ADAPTER, ALL, Parts


def by_share(experiment: Experiment) -> Parts:
    return ALL if experiment.share == "full" else ADAPTER


@dataclass(frozen=True)
class Method:
    """A server, a client, and the model's parts that they share."""

    line: str  # what it does, in one line
    server: type[Server]
    client: type[Client]
    shared: Callable[[Experiment], Parts] = by_share
    extra_outputs: Callable[[Experiment], int] = lambda experiment: 0


METHODS = {
    "refprotofl": Method(
        "private backbones, shared adapter, anchors from a public set",
        RefProtoServer,
        RefProtoClient,
        lambda _: ADAPTER,
    ),
    "fedavg": Method("weights averaged by data size", FedAvgServer, FedAvgClient),
    "fedprox": Method("FedAvg with a pull towards the received weights", FedAvgServer, FedProxClient),
    "fednova": Method("FedAvg with updates normalised by local progress", FedNovaServer, FedNovaClient),
    "lg-fedavg": Method("private backbones, averaged adapter", FedAvgServer, FedAvgClient, lambda _: ADAPTER),
    "local": Method("no federation: every client alone", LocalServer, LocalClient, lambda _: ()),
}


def find_method(name: str) -> Method:
    if name in METHODS:
        return METHODS[name]
    close = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(METHODS)}."
    raise InputError(f"method = {name!r} is not known; {hint}")
