"""Findings of `deploy doctor` about a node's broker: the certificates of both, and whether it accepts the node's."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from refprotofl.deploy.certificates import days_left, validity_problem
from refprotofl.deploy.doctor import PATIENCE, Finding
from refprotofl.deploy.kits import AUTHORITY, KEY, REQUEST, load_key, write_request
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.engines.mqtt.client import Identity
from refprotofl.engines.mqtt.identities import CERTIFICATE
from refprotofl.engines.mqtt.node_process import fits

LISTENS = 1.0  # seconds in which a broker says that it refuses a certificate


def reach_broker(kit: Path, config: NodeConfig) -> Iterator[Finding]:
    """Yield findings about the certificates and the broker; it does not connect, as that would end a running node."""
    key = load_key(kit, config.name)
    write_request(kit, key, config.name)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    if problem := validity_problem(kit / AUTHORITY):
        yield Finding("server", False, problem)
        return
    if not fits(kit / CERTIFICATE, public):
        advice = f"send {kit.absolute() / REQUEST} to the operator, who runs refprotofl deploy admit SITE"
        words = f"{advice} {config.name or 'NAME'} {REQUEST} and sends back {CERTIFICATE} for this folder."
        yield Finding("admission", False, f"this node's key is not admitted: {words}")
        return
    if problem := validity_problem(kit / CERTIFICATE):
        yield Finding("admission", False, problem)
        return
    days = days_left(kit / CERTIFICATE)
    yield Finding("certificate", True, f"valid for {days:.0f} more days.")
    yield _shake_hands(Identity(kit / AUTHORITY, kit / CERTIFICATE, kit / KEY), *config.address)


def _shake_hands(identity: Identity, host: str, port: int) -> Finding:
    try:
        with (
            socket.create_connection((host, port), PATIENCE) as plain,
            identity.context().wrap_socket(plain, server_hostname=host) as secure,
        ):
            secure.settimeout(LISTENS)
            secure.recv(1)
    except TimeoutError:
        return Finding("server", True, f"{host}:{port} answers and accepts this node's certificate.")
    except ssl.SSLCertVerificationError as problem:
        words = f"{host}:{port} has no certificate signed by ca.crt ({problem.verify_message})"
        return Finding("server", False, f"{words}. Is this the kit of that server, and is the clock right?")
    except ssl.SSLError as problem:
        words = f"{host}:{port} refuses this node's certificate ({problem.reason})"
        return Finding("server", False, f"{words}: it may have been revoked. Ask the operator.")
    except OSError as problem:
        return Finding("server", False, f"{host}:{port} cannot be reached ({problem}). Is the server running?")
    return Finding("server", False, f"{host}:{port} closed the connection: is it a broker?")
