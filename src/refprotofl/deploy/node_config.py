"""A node's settings, which its owner writes into node.toml: its data, its store, and what it allows."""

import datetime
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from platformdirs import user_data_path
from pydantic import Field, ValidationError

from refprotofl.core import InputError, is_reference, references
from refprotofl.deploy.transports import TRANSPORTS, TransportKind, TransportName
from refprotofl.experiment import Bytes, Count, Experiment, Table, Text
from refprotofl.experiment.keys import explain, keys, no_such_key

FILE = "node.toml"
CODE_OF_NODES = ("method", "model.name", "own")  # the keys of an experiment whose code would run on a node


class NodeConfig(Table):
    server: str = Field("", description="the server's address, as host:port")
    name: str = Field("", description="the name under which the node's key is admitted")
    transport: TransportName = Field("flower", description="what carries the messages: flower or mqtt")
    data_path: Text = Field(description="the node's data: a .npz file, a folder of class folders or module:function")
    store: str = Field("", description="the folder that the node keeps its private state in")
    client: Count | None = Field(None, description="the client that the node must be; without it, as it is admitted")
    modules: str = Field("", description="code that the node may import, as module:name, separated by commas")
    hold_out: Annotated[float, Field(ge=0, le=0.9)] = Field(
        0.2, description="share of the samples kept for testing if they come without test samples, 0 to 0.9"
    )
    uplink_budget: Bytes | None = Field(None, description="bytes that the node sends in a round at most")
    keep_runs: Annotated[int, Field(ge=1)] = Field(3, description="runs whose state the node keeps, 1 or more")
    look_every: Annotated[float, Field(ge=0.1, le=600)] = Field(
        3.0, description="longest pause in seconds between two looks for work, 0.1 to 600 (Flower)"
    )
    keep_alive: Annotated[int, Field(ge=5, le=3600)] = Field(
        60, description="seconds of silence after which the node sends a ping, 5 to 3600 (MQTT)"
    )
    rate: Bytes | None = Field(None, description="bytes that the node sends in a second at most (MQTT)")
    hours: str = Field("", description='when the node may send, such as "22:00-06:00" by its own clock (MQTT)')

    @classmethod
    def read(cls, config: Mapping[str, Any], kit: Path | None = None) -> Self:
        """Return the settings, checked. An unknown key is refused: a misspelt limit would not hold.

        Relative paths start at the kit, else at the current folder, and are made absolute.
        """
        given, known = dict(config), keys(cls)
        if unknown := [name for name in given if name not in known]:
            raise InputError(f"{FILE}: {no_such_key(unknown[0], known)}")
        if "data-path" not in given:
            raise InputError(f"{FILE} has no data-path: give it the .npz file or the folder with this node's data.")
        here = kit or Path.cwd()
        for name in ("data-path", "store"):
            if isinstance(given.get(name), str) and given[name] and not is_reference(given[name]):
                given[name] = str(here / Path(given[name]).expanduser())
        try:
            found = cls.model_validate(given)
        except ValidationError as error:
            raise InputError(f"{FILE}: {explain(error, cls)}") from None
        found.may_send()
        return found

    @property
    def transport_kind(self) -> TransportKind:
        return TRANSPORTS[self.transport]

    @property
    def address(self) -> tuple[str, int]:
        """The server's host and port."""
        host, _, port = self.server.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise InputError(f'{FILE}: server = {self.server!r} is not an address such as "server.example:8443".')
        return host.strip("[]"), int(port)

    @property
    def span(self) -> tuple[datetime.time, datetime.time]:
        """The beginning and the end of the hours in which the node may send."""
        try:
            begin, end = (datetime.time.fromisoformat(part.strip()) for part in self.hours.split("-"))
        except ValueError:
            raise InputError(f'{FILE}: hours = {self.hours!r} is not a span such as "22:00-06:00".') from None
        return begin, end

    def may_send(self, now: datetime.time | None = None) -> bool:
        """Return whether it is within the owner's hours."""
        if not self.hours:
            return True
        now, (begin, end) = now or datetime.datetime.now().time(), self.span
        return begin <= now < end if begin <= end else now >= begin or now < end

    @property
    def folder(self) -> Path:
        return Path(self.store) if self.store else user_data_path("refprotofl") / "node"

    @property
    def allowed(self) -> frozenset[str]:
        return frozenset(name.strip() for name in self.modules.split(",") if name.strip())

    def refuse_code(self, experiment: Experiment) -> None:
        """A server must not make a node import what its owner has not named."""
        named = [(key, name) for key, name in references(experiment.plain()) if key.startswith(CODE_OF_NODES)]
        if unknown := [f"{key} = {name!r}" for key, name in named if name not in self.allowed]:
            raise InputError(
                f"The experiment names code that this node does not allow: {', '.join(unknown)}. If you trust it, "
                "name it in modules of the node's config."
            )


def read_node_config(kit: Path) -> NodeConfig:
    try:
        found = tomllib.loads((kit / FILE).read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{kit} has no {FILE}: give the folder of a node's kit.") from None
    except ValueError as problem:
        raise InputError(f"{kit / FILE} is not valid TOML: {problem}.") from None
    return NodeConfig.read(found, kit.absolute())
