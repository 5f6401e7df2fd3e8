"""A site: the server's folder of a deployment, with its keys, certificates, operator secret and run records."""

import base64
import json
import secrets
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from refprotofl.core import LOOPBACK, DataError, InputError, MachineError, read_host, read_whole
from refprotofl.deploy.certificates import sign_revocations, write_certificates, write_client
from refprotofl.deploy.transports import TRANSPORTS, TransportKind, TransportName
from refprotofl.experiment import Bytes, Switch, Table, Text
from refprotofl.experiment.keys import explain
from refprotofl.records import create_file, ensure_folder, read_file

FILE = "site.toml"
BROKER_USER = "server"  # the name of the server and of its runs at a broker
LOCKED = 180.0  # seconds that a command waits for another
INSECURE = (
    "INSECURE: no encryption, no authentication. For trials on one machine only; the server listens on "
    "loopback addresses only."
)

Port = Annotated[int, Field(ge=1, le=65_535)]
Number = Annotated[int, Field(ge=1, le=1_000_000)]


class SiteKeys(Table):
    """The keys of site.toml."""

    host: Text = Field(description="the name or address under which nodes reach the server")
    port: Port = Field(description="the port for nodes")
    operator_port: Port = Field(description="the port on 127.0.0.1 for the operator's commands and for runs")
    nodes: Number = Field(description="the number of kits")
    transport: TransportName = Field("flower", description="what carries the messages")
    broker: str = Field("", description="the host:port of a broker that you run; empty: mosquitto, started here")
    insecure: Switch = Field(False, description="without TLS and keys, for trials on one machine")
    max_message: Bytes = Field(64_000_000, description="the largest message that a node may send")
    max_connections: Number = Field(1000, description="connections at a time, of all nodes together")
    max_connections_per_address: Number = Field(250, description="connections at a time from one address")


def broker_user(key: str) -> str:
    """Return a node's user name at a broker, from the SHA-256 of its public key."""
    return base64.b32encode(bytes.fromhex(key)[:10]).decode().lower()


@dataclass(frozen=True)
class Site:
    folder: Path
    keys: SiteKeys

    @property
    def transport(self) -> TransportKind:
        return TRANSPORTS[self.keys.transport]

    @property
    def server(self) -> Path:
        """The folder that never leaves the server."""
        return self.folder / "server"

    @property
    def home(self) -> Path:
        """The transport's own folder, in place of one that all deployments of the user would share."""
        return self.folder / self.transport.name

    @property
    def authority(self) -> Path | None:
        """The certificate of the site's own authority; an insecure site has none."""
        return None if self.keys.insecure else (self.server / "ca.crt").absolute()

    @property
    def log(self) -> Path:
        return self.server / "server.log"

    @property
    def runs(self) -> Path:
        """The folder of run logs and run states, by run id."""
        return self.server / "runs"

    @property
    def operator_address(self) -> str:
        return f"127.0.0.1:{self.keys.operator_port}"

    @property
    def broker_address(self) -> tuple[str, int]:
        """Return where the server and its runs reach the broker."""
        if not self.keys.broker:
            return "127.0.0.1", self.keys.operator_port
        host, _, port = self.keys.broker.rpartition(":")
        number = read_whole(port)
        if not host or number is None or not 0 < number < 65_536:
            raise InputError(f"broker = {self.keys.broker!r} is not an address such as broker.example:8883.")
        return host.strip("[]"), number

    @property
    def ready(self) -> Path:
        """Return the file with the server's process id, there while a server without HTTP looks for runs."""
        return self.server / "server.ready"

    @property
    def broker_process(self) -> Path:
        """Return the file with the id and the command of the broker's process."""
        return self.server / "broker.json"

    def certificate(self, key: str) -> Path:
        """Return the certificate of an admitted node over MQTT, by the SHA-256 of its public key."""
        return self.server / "certificates" / f"{broker_user(key)}.crt"

    def kit(self, node: int) -> Path:
        return self.folder / "kits" / f"node-{node}"

    def secret(self) -> str:
        """Return the operator's secret, which only the owner of the site can read."""
        path = self.server / "operator.secret"
        try:
            mode = path.stat().st_mode & 0o777
            found = read_file(path).decode("ascii").strip()
        except (OSError, ValueError):
            raise DataError(f"Cannot read the operator's secret {path}: only the site's owner can.") from None
        if mode & 0o077:
            raise DataError(f"Others can read the operator's secret: chmod 600 {path}, and replace it.")
        return found

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """Keep other commands from changing the same thing meanwhile."""
        try:
            with FileLock(self.server / f".{what}.lock", timeout=LOCKED, mode=0o600):
                yield
        except Timeout:
            raise MachineError(f"Another command has been at work on {self.folder} for {LOCKED:g} s.") from None


def read_site(folder: Path) -> Site:
    try:
        keys = tomllib.loads(read_file(folder / FILE).decode())
    except OSError:
        raise InputError(f"{folder} is not a site. Make one with: refprotofl deploy init {folder}") from None
    except ValueError as problem:
        raise InputError(f"{folder / FILE} is not valid TOML: {problem}.") from None
    try:
        return Site(folder, SiteKeys.model_validate(keys))
    except ValidationError as error:
        raise InputError(f"{folder / FILE}: {explain(error, SiteKeys)}") from None


def create_site(folder: Path, keys: SiteKeys) -> Site:
    """Write the server's part of a new site; nothing that exists is overwritten."""
    keys = keys.model_copy(update={"host": read_host(keys.host, "--host")})
    site = Site(folder, keys)
    if keys.insecure and keys.host not in LOOPBACK:
        raise InputError(f"--insecure is for trials on one machine: use --host 127.0.0.1, not {keys.host}.")
    if site.transport.certificate and keys.insecure:
        raise InputError(f"--insecure is not for {keys.transport}: a node's certificate is its name at the broker.")
    if keys.broker:
        _ = site.broker_address
    if keys.port == keys.operator_port:
        raise InputError(f"--port and --operator-port are both {keys.port}: give the operator another port.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not empty: use a new folder.")
    for one in (folder, site.server, site.home, site.runs):
        ensure_folder(one, private=True)
    if not keys.insecure:
        write_certificates(site.server, keys.host)
    if site.transport.certificate:
        write_client(site.server, BROKER_USER)
        create_file(site.server / "revoked.pem", sign_revocations(site.server, []), 0o644)
    create_file(site.server / "operator.secret", f"{secrets.token_urlsafe(32)}\n".encode(), 0o600)
    create_file(folder / FILE, _toml(keys).encode(), 0o600)
    return site


def _toml(keys: SiteKeys) -> str:
    lines = ["# A refprotofl site. Restart the server after a change: refprotofl deploy stop, refprotofl deploy start."]
    for name, field in SiteKeys.model_fields.items():
        lines.append(f"{field.alias} = {json.dumps(getattr(keys, name))}  # {field.description}")
    return "\n".join(lines) + "\n"
