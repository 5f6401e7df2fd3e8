"""A certificate authority of a deployment's own, and the server's certificate."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from refprotofl.core.network import LOOPBACK
from refprotofl.records.atomic_files import create_file

DAYS = 825  # the longest validity that most systems accept for a server
SLACK = datetime.timedelta(hours=1)  # for clocks that are behind
AUTHORITY = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "refprotofl deployment CA")])


def write_certificates(folder: Path, host: str) -> None:
    """Write ca.crt, ca.key, server.crt and server.key for `host` and loopback; keys are private to their owner."""
    root_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    root = (
        _started(AUTHORITY, root_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(root_key.public_key()), critical=False)
        .sign(root_key, hashes.SHA384())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    names = [_named(name) for name in dict.fromkeys([host, *LOOPBACK])]
    server = (
        _started(subject, server_key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
        .sign(root_key, hashes.SHA384())
    )
    for name, certificate, key in (("ca", root, root_key), ("server", server, server_key)):
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        create_file(folder / f"{name}.crt", certificate.public_bytes(Encoding.PEM), 0o644)
        create_file(folder / f"{name}.key", secret, 0o600)


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
        return f"{path.name} expired on {ends:%Y-%m-%d}: make a new site with refprotofl deploy init, and new kits."
    return ""


def _started(subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(AUTHORITY).public_key(key)
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - SLACK)
    return builder.not_valid_after(now + datetime.timedelta(days=DAYS))


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
