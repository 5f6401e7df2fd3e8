"""A certificate authority of a deployment's own, and the certificates that it signs: the server's and nodes'."""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from refprotofl.core import LOOPBACK, DataError, InputError
from refprotofl.records import create_file, write_whole

DAYS = 825  # the longest validity that most systems accept for a server
AUTHORITY_DAYS = 3650  # the authority outlives what it signs, which can be renewed
NODE_DAYS = 365
SLACK = datetime.timedelta(hours=1)  # for clocks that are behind
NAME = NameOID.ORGANIZATIONAL_UNIT_NAME  # the field with a node's name
AUTHORITY = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "refprotofl deployment CA")])


def write_certificates(folder: Path, host: str) -> None:
    """Write ca.crt, ca.key, server.crt and server.key for `host` and loopback; keys are private to their owner."""
    root_key = ec.generate_private_key(ec.SECP384R1())
    root = (
        _started(AUTHORITY, root_key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(root_key.public_key()), critical=False)
        .sign(root_key, hashes.SHA384())
    )
    _write_key(folder, "ca", root_key)
    create_file(folder / "ca.crt", root.public_bytes(Encoding.PEM), 0o644)
    server_key = ec.generate_private_key(ec.SECP384R1())
    _write_key(folder, "server", server_key)
    create_file(folder / "server.crt", _sign_server(folder, host, server_key.public_key()), 0o644)


def renew_server(folder: Path, host: str) -> None:
    """Replace server.crt by one that begins now, for the same key."""
    key = _load_key(folder / "server.key")
    write_whole(folder / "server.crt", _sign_server(folder, host, key.public_key()))


def write_client(folder: Path, user: str) -> None:
    """Write client.crt and client.key, with which the server itself is a client of a broker, as this user."""
    key = ec.generate_private_key(ec.SECP384R1())
    _write_key(folder, "client", key)
    create_file(folder / "client.crt", sign_client(folder, user, key.public_key(), DAYS), 0o644)


def renew_client(folder: Path, user: str) -> None:
    key = _load_key(folder / "client.key")
    write_whole(folder / "client.crt", sign_client(folder, user, key.public_key(), DAYS))


def sign_node(folder: Path, user: str, name: str, key: Any) -> bytes:
    """Return a certificate (PEM) for a node's public key; `user` is its name at a broker, `name` the operator's."""
    return sign_client(folder, user, key, NODE_DAYS, name)


def sign_client(folder: Path, user: str, key: Any, days: int, name: str = "") -> bytes:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, user)] + ([x509.NameAttribute(NAME, name)] if name else [])
    return _sign(folder, _leaf(folder, x509.Name(parts), key, days, ExtendedKeyUsageOID.CLIENT_AUTH))


def sign_revocations(folder: Path, serials: Sequence[int]) -> bytes:
    """Return a list of revoked certificates (PEM), by their serial numbers; it is valid as long as the authority."""
    authority, now = _load_certificate(folder / "ca.crt"), datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(AUTHORITY).last_update(now - SLACK)
    builder = builder.next_update(authority.not_valid_after_utc)
    for serial in serials:
        revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - SLACK).build()
        builder = builder.add_revoked_certificate(revoked)
    signed: bytes = builder.sign(_load_key(folder / "ca.key"), hashes.SHA384()).public_bytes(Encoding.PEM)
    return signed


def days_left(path: Path) -> float:
    """Return the days until a certificate ends."""
    return days_until(_load_certificate(path).not_valid_after_utc.timestamp())


def days_until(moment: float) -> float:
    """Return the days until a moment in seconds since 1970."""
    return (moment - datetime.datetime.now(datetime.UTC).timestamp()) / 86_400


def _sign_server(folder: Path, host: str, key: Any) -> bytes:
    names = [_named(name) for name in dict.fromkeys([host, *LOOPBACK])]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    builder = _leaf(folder, subject, key, DAYS, ExtendedKeyUsageOID.SERVER_AUTH)
    return _sign(folder, builder.add_extension(x509.SubjectAlternativeName(names), critical=False))


def _leaf(folder: Path, subject: x509.Name, key: Any, days: int, use: Any) -> x509.CertificateBuilder:
    authority = _load_certificate(folder / "ca.crt")
    return (
        _started(subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(_issuer(authority), critical=False)
    )


def _issuer(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    known = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _sign(folder: Path, builder: x509.CertificateBuilder) -> bytes:
    signed: bytes = builder.sign(_load_key(folder / "ca.key"), hashes.SHA384()).public_bytes(Encoding.PEM)
    return signed


def _write_key(folder: Path, name: str, key: ec.EllipticCurvePrivateKey) -> None:
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    create_file(folder / f"{name}.key", secret, 0o600)


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError:
        raise InputError(f"{path} is not here. If you keep it elsewhere, put it back for this command.") from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DataError(f"{path} is damaged: restore it from a backup.")
    return key


def _load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        raise DataError(f"{path} cannot be read as a certificate: restore it from a backup.") from None


def validity_problem(path: Path) -> str:
    """Return what is wrong with a certificate's dates, with the remedy; "" while it is valid."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return f"{path} cannot be read as a certificate: make a new site with refprotofl deploy init."
    now, begins, ends = (
        datetime.datetime.now(datetime.UTC),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )
    if now < begins:
        return (
            f"{path.name} is not valid before {begins:%Y-%m-%d %H:%M} UTC, and this clock says "
            f"{now:%Y-%m-%d %H:%M} UTC: set it."
        )
    if now > ends:
        remedy = (
            "make a new site with refprotofl deploy init, and new kits"
            if path.name == "ca.crt"
            else "the operator replaces it with refprotofl deploy renew SITE"
        )
        return f"{path.name} expired on {ends:%Y-%m-%d}: {remedy}."
    return ""


def _started(subject: x509.Name, key: Any, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(AUTHORITY).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - SLACK)
    return builder.not_valid_after(now + datetime.timedelta(days=days))


def _usage(*, signs: bool) -> x509.KeyUsage:
    """Return a key's usage: signing certificates, or TLS."""
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
