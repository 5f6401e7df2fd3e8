"""The nodes' certificates: issued when a key is admitted, renewed before they expire, and revoked for good."""

import time
from collections.abc import Collection, Iterator
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from refprotofl.deploy import certificates
from refprotofl.deploy.admission import fingerprint, read_admissions
from refprotofl.deploy.site import Site, broker_user
from refprotofl.deploy.transport import Node
from refprotofl.deploy.transports import MQTT
from refprotofl.records import ensure_folder, write_whole

CERTIFICATE = MQTT.certificate  # in a kit


def issue(site: Site, name: str, public_key: bytes) -> Path:
    """Sign a certificate for a node's public key (PEM); return its file."""
    key = load_pem_public_key(public_key)
    certificate = certificates.sign_node(site.server, broker_user(fingerprint(public_key)), name, key)
    path = _issued(site) / f"{broker_user(fingerprint(public_key))}.crt"
    ensure_folder(path.parent, private=True)
    _set_aside(site, path)
    write_whole(path, certificate)
    for kit in (site.folder / "kits").glob("*"):
        if kit.name == name:
            write_whole(kit / CERTIFICATE, certificate)
    return path


def days_left(site: Site) -> dict[str, float]:
    """Return the days until the nodes' certificates end, by the nodes' names."""
    found = map(_details, issued_certificates(site).values())
    return {name: certificates.days_until(ends) for name, _, ends in found}


def renew(site: Site, names: Collection[str]) -> list[str]:
    """Issue the certificates of these nodes anew, for the same keys; return the names of those that have one."""
    renewed = []
    for certificate in issued_certificates(site).values():
        name, key, _ = _details(certificate)
        if name in names:
            issue(site, name, key)
            renewed.append(name)
    return sorted(renewed)


def revoke(site: Site, node: str) -> None:
    """Put a node's certificate on the list of revoked ones."""
    path = _issued(site) / f"{node}.crt"
    ensure_folder(_revoked(site), private=True)
    for earlier in _replaced(site).glob(f"{node}.*.crt"):
        earlier.replace(_revoked(site) / earlier.name)
    if path.exists():
        path.replace(_revoked(site) / path.name)
    serials = [x509.load_pem_x509_certificate(one.read_bytes()).serial_number for one in _paths(_revoked(site))]
    write_whole(site.server / "revoked.pem", certificates.sign_revocations(site.server, serials))


def _set_aside(site: Site, path: Path) -> None:
    """Keep a certificate that is replaced: it is valid until it ends, and is revoked with its node."""
    if path.exists():
        ensure_folder(_replaced(site), private=True)
        write_whole(_replaced(site) / f"{path.stem}.{time.time_ns()}.crt", path.read_bytes())


def issued_certificates(site: Site) -> dict[str, bytes]:
    """Return the nodes' certificates by their user names at the broker."""
    return {path.stem: path.read_bytes() for path in _paths(_issued(site))}


def renewed_certificates(site: Site) -> dict[str, bytes]:
    """Return the certificates that have replaced others; every node had its first one before it could connect."""
    replaced = {path.name.partition(".")[0] for path in _paths(_replaced(site))}
    return {node: one for node, one in issued_certificates(site).items() if node in replaced}


def certificates_changed(site: Site) -> int:
    """Return when a certificate was issued or revoked last, in nanoseconds since 1970; 0 if none was."""
    folder = _issued(site)
    return folder.stat().st_mtime_ns if folder.exists() else 0


def revoked_nodes(site: Site) -> set[str]:
    return {path.name.partition(".")[0] for path in _paths(_revoked(site))}


def registered(site: Site) -> Iterator[tuple[str, str, str]]:
    """Yield user name, name and SHA-256 of the public key of every node that has a certificate."""
    for node, certificate in sorted(issued_certificates(site).items()):
        name, key, _ = _details(certificate)
        yield node, name, fingerprint(key)


def admitted_nodes(site: Site) -> dict[str, Node]:
    """Return the admitted nodes by their user names; they have no number yet."""
    return {broker_user(one.key): Node(0, one.key, name) for name, one in read_admissions(site).nodes.items()}


@lru_cache(maxsize=20_000)
def _details(certificate: bytes) -> tuple[str, bytes, float]:
    """Return the node's name, its public key (PEM) and the end of its certificate in seconds since 1970."""
    found = x509.load_pem_x509_certificate(certificate)
    name = str(found.subject.get_attributes_for_oid(certificates.NAME)[0].value)
    key = found.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return name, key, found.not_valid_after_utc.timestamp()


def _paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.crt"))


def _issued(site: Site) -> Path:
    return site.server / "certificates"


def _revoked(site: Site) -> Path:
    return site.server / "revoked"


def _replaced(site: Site) -> Path:
    return site.server / "replaced"
