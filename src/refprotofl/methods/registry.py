"""The methods by name; one of the user's own by `module:Class`."""

import difflib

from refprotofl.basics.plugins import is_reference
from refprotofl.errors import InputError
from refprotofl.methods import costs
from refprotofl.methods.centralised import CentralisedClient, CentralisedServer
from refprotofl.methods.costs import Cost
from refprotofl.methods.fast import FASTClient, FASTServer
from refprotofl.methods.fedavg import FedAvgClient, FedAvgServer
from refprotofl.methods.fedgh import FedGHClient, FedGHServer
from refprotofl.methods.fednova import FedNovaClient, FedNovaServer
from refprotofl.methods.fedpac import FedPACClient, FedPACServer
from refprotofl.methods.fedpcl import FedPCLClient, FedPCLServer
from refprotofl.methods.fedproc import FedProcClient, FedProcServer
from refprotofl.methods.fedproto import FedProtoClient, FedProtoServer
from refprotofl.methods.fedprotokd import FedProtoKDClient, FedProtoKDServer
from refprotofl.methods.fedprox import FedProxClient
from refprotofl.methods.fedrep import FedRepClient
from refprotofl.methods.fedtgp import FedTGPClient, FedTGPServer
from refprotofl.methods.local import LocalClient, LocalServer
from refprotofl.methods.method import Method, load_method
from refprotofl.methods.refprotofl import RefProtoServer
from refprotofl.methods.refprotofl_client import RefProtoClient
from refprotofl.methods.vhl import VHLClient
from refprotofl.models import ADAPTER, ALL, BODY, HEAD

METHODS = {
    "refprotofl": Method(
        "private backbones, shared adapter, anchors from a public set",
        RefProtoServer,
        RefProtoClient,
        lambda _: ADAPTER,
        cost=costs.refprotofl,
    ),
    "fedavg": Method("weights averaged by data size", FedAvgServer, FedAvgClient),
    "fedprox": Method("FedAvg with a pull towards the received weights", FedAvgServer, FedProxClient),
    "fednova": Method(
        "FedAvg with updates normalised by local progress", FedNovaServer, FedNovaClient, cost=costs.fednova
    ),
    "lg-fedavg": Method("private backbones, averaged adapter", FedAvgServer, FedAvgClient, lambda _: ADAPTER),
    "fedper": Method("shared body, private heads", FedAvgServer, FedAvgClient, lambda _: BODY),
    "fedrep": Method("shared body, private heads, trained in turn", FedAvgServer, FedRepClient, lambda _: BODY),
    "fedpac": Method(
        "shared body drawn to common prototypes, each client's head mixed from all heads",
        FedPACServer,
        FedPACClient,
        lambda _: BODY,
        cost=lambda _: Cost("P + C*(m + 1) + C*m + C + C*m + 1", "P + C*m + C*(m + 1)"),
    ),
    "fedproto": Method(
        "only class prototypes, averaged", FedProtoServer, FedProtoClient, lambda _: (), cost=costs.prototypes
    ),
    "fedgh": Method(
        "a head trained on the server from prototypes",
        FedGHServer,
        FedGHClient,
        lambda _: HEAD,
        cost=lambda _: Cost("C*(m + 1)", "C*(m + 1)"),
    ),
    "fedtgp": Method(
        "only class prototypes, trained apart by the server",
        FedTGPServer,
        FedTGPClient,
        lambda _: (),
        cost=costs.prototypes,
    ),
    "fedproc": Method(
        "FedAvg with contrast to global prototypes",
        FedProcServer,
        FedProcClient,
        cost=lambda _: Cost("P + C*m", "P + C*m"),
    ),
    "fedpcl": Method(
        "a frozen backbone, prototypes of all clients in contrast",
        FedPCLServer,
        FedPCLClient,
        lambda _: (),
        cost=lambda _: Cost("C*m", "(N + 1)*C*m + N*C"),
    ),
    "fedprotokd": Method(
        "logits and prototypes of public images, distilled",
        FedProtoKDServer,
        FedProtoKDClient,
        lambda _: (),
        cost=lambda _: Cost("D*(C + m)", "D*(C + 1) + C*m"),
    ),
    "vhl": Method(
        "FedAvg with a set of noise that draws all clients' features together",
        FedAvgServer,
        VHLClient,
        extra_outputs=lambda experiment: experiment.known_input.num_classes,
    ),
    "fast": Method("FedAvg on few labels made by hand and many weak ones", FASTServer, FASTClient),
    "centralised": Method(
        "no federation: one model on everybody's data",
        CentralisedServer,
        CentralisedClient,
        lambda _: ALL,
        cost=costs.nothing,
        pooled=True,
    ),
    "local": Method("no federation: every client alone", LocalServer, LocalClient, lambda _: (), cost=costs.nothing),
}


def find_method(name: str) -> Method:
    if name in METHODS:
        return METHODS[name]
    if is_reference(name):
        return load_method(name)
    close = difflib.get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(METHODS)}, or module:Class for your own."
    raise InputError(f"method = {name!r} is not known; {hint}")
