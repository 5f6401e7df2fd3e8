"""The admitted nodes of a site: name, public key and client of each."""

import json
import re
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from pydantic import TypeAdapter, ValidationError

from refprotofl.core import DataError, InputError
from refprotofl.deploy.site import Site
from refprotofl.records import check_file, read_file, sha256, write_whole

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
REQUEST = b"-----BEGIN CERTIFICATE REQUEST-----"
LONGEST_KEY = 10_000  # bytes of a file with a public key


@dataclass(frozen=True)
class Admitted:
    key: str  # SHA-256 of the public key
    client: int


@dataclass(frozen=True)
class Admissions:
    nodes: dict[str, Admitted]  # by name
    revoked: list[str]  # keys that cannot be admitted again

    def client_of(self, name: str, key: str) -> int | None:
        """Return the client that a node is, by its name and key; None if it is not admitted."""
        found = self.nodes.get(name)
        return found.client if found is not None and found.key == key else None

    def check_new(self, name: str, key: str, client: int) -> None:
        """Raise InputError unless this node can be admitted; an admission that is repeated changes nothing."""
        if not NAME.fullmatch(name):
            raise InputError(f"{name!r} is not a node's name: use letters, digits, '.', '_' and '-', 63 at the most.")
        if key in self.revoked:
            raise InputError(
                "This key was revoked. Delete node.key on the node, start it again, and admit its new key."
            )
        for other, known in self.nodes.items():
            if known.key == key:
                raise InputError(f"This key is admitted already, as {other}.")
            if other == name:
                raise InputError(
                    f"{name} is admitted already, with another key. If its node has a new key, revoke the old one "
                    f"first: refprotofl deploy revoke SITE {name}"
                )
            if known.client == client:
                raise InputError(f"Client {client} belongs to {other} already: choose another with --client.")

    def admit(self, name: str, key: str, client: int) -> "Admissions":
        return replace(self, nodes={**self.nodes, name: Admitted(key, client)})

    def revoke(self, name: str) -> "Admissions":
        kept = {other: known for other, known in self.nodes.items() if other != name}
        return Admissions(kept, [*self.revoked, self.nodes[name].key])


_KEPT = TypeAdapter(Admissions)


def read_admissions(site: Site) -> Admissions:
    path = _path(site)
    if not check_file(path):
        return Admissions({}, [])
    found = path.stat()
    return _parse(path, (found.st_ino, found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=8)
def _parse(path: Path, version: tuple[int, int, int]) -> Admissions:
    """Read the file once for each version of it: a run looks up every node again and again."""
    try:
        return _KEPT.validate_json(read_file(path), strict=True)
    except (OSError, ValidationError):
        raise DataError(f"{path} is damaged: it lists the admitted nodes. Restore it from a backup.") from None


def write_admissions(site: Site, admissions: Admissions) -> None:
    write_whole(_path(site), (json.dumps(asdict(admissions), indent=2) + "\n").encode())


def _path(site: Site) -> Path:
    return site.server / "admitted.json"


def default_client(name: str, nodes: int) -> int:
    """Return the client number at the end of a name such as node-3."""
    number = re.fullmatch(r".*?(\d{1,7})", name)
    if number is None or int(number[1]) >= nodes:
        raise InputError(f"The name {name} does not end in a client number. Give --client 0 to {nodes - 1}.")
    return int(number[1])


def read_public_key(path: Path) -> bytes:
    """Return a node's public key as its transport has it (PEM), from the OpenSSH line or the request that it writes."""
    try:
        data = path.read_bytes() if path.stat().st_size <= LONGEST_KEY else b""
    except OSError as problem:
        raise InputError(f"Cannot read {path}: {problem.strerror}. Give the node.key.pub of a node.") from None
    try:
        key = _requested_key(data) if data.startswith(REQUEST) else load_ssh_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(f"{path} is not a node's public key: give its node.key.pub, over MQTT its node.csr.") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InputError(f"{path} is not an elliptic-curve key: delete node.key there and start it again.")
    found: bytes = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def _requested_key(data: bytes) -> object:
    """Return the key of a certificate request; raise ValueError if it is not signed with it."""
    request = x509.load_pem_x509_csr(data)
    if not request.is_signature_valid:
        raise ValueError("not signed with its own key")
    return request.public_key()


def fingerprint(public_key: bytes) -> str:
    return sha256(public_key)
