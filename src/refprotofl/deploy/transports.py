"""The transports of a deployment by name: all that a site, its kits and the commands must know of each.

The modules of an engine are named here and loaded when they are used: they need the packages of its extra.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from refprotofl.core import InputError

if TYPE_CHECKING:
    from refprotofl.deploy.doctor import Finding
    from refprotofl.deploy.node_config import NodeConfig
    from refprotofl.deploy.operator import Operator
    from refprotofl.deploy.site import Site

TransportName = Literal["flower", "mqtt"]


@dataclass(frozen=True)
class TransportKind:
    """The facts about a transport. Its code is named as `module:attribute`."""

    name: TransportName  # also of its extra
    package: str  # of the extra, as it is imported
    distribution: str  # the same, as pip calls it
    server: str  # the module that is the program of a site's server
    operator: str  # the class of its `Operator`, made of a site
    node: str  # a function that runs the node of a kit until it is interrupted
    check: str  # a function that yields the findings of `deploy doctor` about the server of a kit
    key_file: str  # the file of a kit by which the operator admits its node
    settings: str  # lines of node.toml
    release: str = ""  # the only one of the distribution that is supported
    certificate: str = ""  # the file of a kit for the certificate of its admitted node; empty: its key is enough
    http: bool = False  # its server answers HTTP when it is ready; others write their process id into a file

    @property
    def certificates(self) -> tuple[str, ...]:
        """The certificates in the server's folder."""
        return ("ca.crt", "server.crt", *(("client.crt",) if self.certificate else ()))

    def require_extra(self) -> None:
        """Raise InputError if the package that it needs is not installed."""
        if find_spec(self.package) is None:
            raise InputError(f"A deployment over {self.name} needs its extra: pip install 'refprotofl[{self.name}]'.")

    def connect(self, site: "Site") -> "Operator":
        """Return the operator's side of a site."""
        operator: Operator = self._load(self.operator)(site)
        return operator

    def serve(self, kit: Path) -> None:
        """Run the node of a kit until it is interrupted."""
        self._load(self.node)(kit)

    def reach(self, kit: Path, config: "NodeConfig") -> "Iterator[Finding]":
        """Yield the findings about the server of a node."""
        yield from self._load(self.check)(kit, config)

    def _load(self, reference: str) -> Any:
        self.require_extra()
        module, _, attribute = reference.partition(":")
        return getattr(import_module(module), attribute)


FLOWER = TransportKind(
    name="flower",
    package="flwr",
    distribution="flwr",
    release="1.41",
    server="refprotofl.engines.flower.superlink",
    operator="refprotofl.engines.flower.control:FlowerOperator",
    node="refprotofl.engines.flower.node_loop:serve",
    check="refprotofl.engines.flower.doctor:reach_superlink",
    key_file="node.key.pub",
    settings="# look-every = 3          # the longest pause in seconds between two looks for work\n",
    http=True,
)
MQTT = TransportKind(
    name="mqtt",
    package="paho",
    distribution="paho-mqtt",
    server="refprotofl.engines.mqtt.server",
    operator="refprotofl.engines.mqtt.control:MqttOperator",
    node="refprotofl.engines.mqtt.node_process:serve",
    check="refprotofl.engines.mqtt.doctor:reach_broker",
    key_file="node.csr",
    certificate="node.crt",
    settings="""# rate = "50 kB"          # the most that it sends per second
# hours = "22:00-06:00"   # when it may send, by this device's clock
# keep-alive = 60         # seconds of silence after which it sends a ping
""",
)
TRANSPORTS = {one.name: one for one in (FLOWER, MQTT)}
