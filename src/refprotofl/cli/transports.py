"""The transports of a deployment by name: the package that each needs, its operator and its nodes."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from refprotofl.core import InputError

if TYPE_CHECKING:
    from refprotofl.deploy.operator import Operator
    from refprotofl.deploy.site import Site

TransportName = Literal["flower", "mqtt"]
NEEDS = {"flower": "flwr", "mqtt": "paho"}  # the package of each extra


def require_extra(transport: str) -> None:
    if find_spec(NEEDS[transport]) is None:
        raise InputError(f"A deployment over {transport} needs its extra: pip install 'refprotofl[{transport}]'.")


def connect(site: "Site") -> "Operator":
    """Return the operator's side of a site."""
    require_extra(site.keys.transport)
    if site.keys.transport == "mqtt":
        from refprotofl.engines.mqtt.control import MqttOperator

        return MqttOperator(site)
    from refprotofl.engines.flower.control import FlowerOperator

    return FlowerOperator(site)


def serve_node(kit: Path) -> None:
    """Run the node of a kit until it is interrupted."""
    from refprotofl.deploy.node_config import read_node_config

    transport = read_node_config(kit).transport
    require_extra(transport)
    if transport == "mqtt":
        from refprotofl.engines.mqtt.node_process import serve
    else:
        from refprotofl.engines.flower.node_loop import serve
    serve(kit)
