"""A node's process over MQTT: waits for its certificate, connects, and answers until it is stopped."""

import datetime
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from refprotofl.deploy.admission import fingerprint
from refprotofl.deploy.certificates import days_left
from refprotofl.deploy.kits import AUTHORITY, KEY, REQUEST, load_key, write_request
from refprotofl.deploy.log import log
from refprotofl.deploy.node import handle
from refprotofl.deploy.node_config import NodeConfig, read_node_config
from refprotofl.deploy.renewal import WARNING
from refprotofl.deploy.site import broker_user
from refprotofl.deploy.transport import Envelope
from refprotofl.engines.mqtt.client import Identity, PacedLink, PahoLink
from refprotofl.engines.mqtt.identities import CERTIFICATE
from refprotofl.engines.mqtt.link import Topics
from refprotofl.engines.mqtt.node import MqttNode
from refprotofl.engines.mqtt.parts import ContentStore
from refprotofl.records import write_whole

LOOK = 0.5  # seconds between two looks for a certificate
WORK = 5.0  # seconds of a wait for a request, between which stalled payloads are asked for again
DAY = 86_400.0  # seconds between two looks at the end of its certificate


def serve(kit: Path) -> None:
    """Run the node of a kit until it is interrupted."""
    ended = threading.Event()
    config, key = read_node_config(kit), load_key(kit, read_node_config(kit).name)
    write_request(kit, key, config.name)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    await_certificate(kit, public, config.name, ended)
    node, link = connect(kit, config, public)

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()
        node.wake()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    warned = 0.0
    while not ended.is_set():
        if time.time() - warned > DAY:
            warned = time.time()
            warn_of_end(kit)
        node.work(WORK)
    node.go_offline()
    link.flush(2.0)
    link.close()
    sys.exit(0)


def await_certificate(kit: Path, public: bytes, name: str, ended: threading.Event) -> None:
    """Wait until the kit has a certificate for this key."""
    said = False
    while not fits(kit / CERTIFICATE, public):
        if not said:
            request = (kit / REQUEST).absolute()
            log(
                f"This node's key is not admitted. Send {request} to the operator, who runs: refprotofl deploy admit "
                f"SITE {name or 'NAME'} {REQUEST}, and sends back {CERTIFICATE} for this folder. Until then this node "
                "waits."
            )
            said = True
        ended.wait(LOOK)


def fits(path: Path, public: bytes) -> bool:
    """Return whether a file is a certificate for this public key."""
    try:
        return _public_key(x509.load_pem_x509_certificate(path.read_bytes())) == public
    except (OSError, ValueError):
        return False


def _public_key(certificate: x509.Certificate) -> bytes:
    found: bytes = certificate.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def connect(kit: Path, config: NodeConfig, public: bytes) -> tuple[MqttNode, PahoLink]:
    topics, identity = Topics(), broker_user(fingerprint(public))
    files = Identity(kit / AUTHORITY, kit / CERTIFICATE, kit / KEY)
    link = PahoLink(
        config.address,
        files,
        identity,
        will=topics.presence(identity),
        keep_alive=config.keep_alive,
        say=log,
    )

    def renewed(certificate: bytes) -> None:
        if install(kit, certificate, public):
            log(f"A new certificate has come; it is used from the next connection on.{_validity(kit)}")

    def answer(action: str, envelope: Envelope) -> Envelope:
        return handle(config, action, envelope)

    paced = PacedLink(link, config.rate, config.may_send) if config.rate or config.hours else link
    contents = ContentStore(config.folder / "content")
    return MqttNode(paced, identity, answer, contents, renew=renewed), link


def warn_of_end(kit: Path) -> None:
    """Say so if the node's certificate ends soon, or has ended."""
    days = days_left(kit / CERTIFICATE)
    if days < WARNING:
        what = "has expired" if days < 0 else "expires soon"
        log(f"This node's certificate {what}: ask the operator for refprotofl deploy renew.{_validity(kit)}")


def install(kit: Path, certificate: bytes, public: bytes) -> bool:
    """Put a certificate in the place of this node's, if it is for the same key, of the same CA, and lasts longer."""
    try:
        new = x509.load_pem_x509_certificate(certificate)
        old = x509.load_pem_x509_certificate((kit / CERTIFICATE).read_bytes())
        new.verify_directly_issued_by(x509.load_pem_x509_certificate((kit / AUTHORITY).read_bytes()))
    except Exception:  # the library raises several kinds for what is not one of ours
        return False
    if _public_key(new) != public or new.not_valid_after_utc <= old.not_valid_after_utc:
        return False
    write_whole(kit / CERTIFICATE, certificate)
    return True


def _validity(kit: Path) -> str:
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days_left(kit / CERTIFICATE))
    return f" It is valid until {ends:%Y-%m-%d}."
