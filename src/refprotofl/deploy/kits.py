"""A node's kit: all that a node needs but its data. Its private key is made on the node and never leaves it."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from refprotofl.core import DataError, InputError, counted, with_port
from refprotofl.deploy.site import Site
from refprotofl.deploy.transports import FLOWER, MQTT
from refprotofl.records import create_file, ensure_folder, write_whole

KEY, AUTHORITY = "node.key", "ca.crt"
PUBLIC_KEY, REQUEST = FLOWER.key_file, MQTT.key_file


def write_kits(site: Site, names: Sequence[str] = ()) -> None:
    """Write a kit for each node, under the given names or node-0, node-1, …"""
    for node in range(site.keys.nodes):
        _write_kit(site, node, names[node] if names else f"node-{node}")
    write_server_unit(site)


def read_names(text: str, nodes: int) -> tuple[str, ...]:
    """Return the nodes' names from a list with commas; raise InputError if they are not one for each, all different."""
    names = tuple(one.strip() for one in text.split(",") if one.strip())
    if names and len(names) != nodes:
        raise InputError(f"--names has {counted(len(names), 'name')} for {counted(nodes, 'node')}: give one for each.")
    if len({name.casefold() for name in names}) < len(names):
        raise InputError(f"--names {text}: two names differ at most in case; a node's key is admitted under its name.")
    return names


def _write_kit(site: Site, node: int, name: str) -> None:
    kit = site.kit(node)
    ensure_folder(kit)
    if site.authority is not None:
        create_file(kit / AUTHORITY, site.authority.read_bytes(), 0o644)
    for file, (text, mode) in {
        "node.toml": (_node_config(site, name), 0o644),
        "start.sh": (START, 0o755),
        "refprotofl-node.service": (_unit(node), 0o644),
        "Containerfile": (CONTAINER, 0o644),
    }.items():
        create_file(kit / file, text.replace("EXTRA", site.transport.name).encode(), mode)


def load_key(kit: Path, name: str) -> ec.EllipticCurvePrivateKey:
    """Return the node's private key, made now if there is none, and write its public part next to it."""
    path = kit / KEY
    if not path.exists():
        secret = ec.generate_private_key(ec.SECP384R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        part = path.with_name(f".{KEY}.{os.getpid()}.part")
        create_file(part, secret, 0o600)
        os.link(part, path)  # never replaces a key that another process has just made
        part.unlink()
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise DataError(f"{path} is damaged: delete it and {PUBLIC_KEY}, start again, and have the new key admitted.")
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + f" {name}\n".encode()
    public = kit / PUBLIC_KEY
    if not public.exists() or public.read_bytes() != line:
        write_whole(public, line)
    return key


def write_request(kit: Path, key: ec.EllipticCurvePrivateKey, name: str) -> None:
    """Write a request for a certificate next to the key; it proves that the node has the key."""
    path = kit / REQUEST
    if path.exists() and path.stat().st_mtime >= (kit / KEY).stat().st_mtime:
        return
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name or "node")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA384())
    write_whole(path, request.public_bytes(Encoding.PEM))


def _node_config(site: Site, name: str) -> str:
    address = site.keys.broker or with_port(site.keys.host, site.keys.port)
    return f"""# This node's settings; only its owner decides them.
server = {json.dumps(address)}
transport = {json.dumps(site.transport.name)}
name = {json.dumps(name)}           # the name under which its key is admitted
data-path = "data"        # a .npz file, a table, a folder of class folders, or module:function
store = "store"           # its private state; only its owner can read it
# modules = "mine:Method" # code of the experiment that may be imported here
# uplink-budget = "20 kB" # the most that it sends in a round, where the experiment has a budget, too
{site.transport.settings}# keep-runs = 3           # the number of runs whose state its store keeps
# hold-out = 0.2          # share kept for testing if the data come without test samples
"""


START = """#!/bin/sh
# Runs this node until it is stopped, and starts it again when it was killed.
set -eu
cd "$(dirname "$0")"
if ! command -v refprotofl > /dev/null; then
    echo "refprotofl is not on the PATH: activate the environment that has refprotofl[EXTRA], then start again." >&2
    exit 127
fi
trap 'kill "$child" 2>/dev/null || true; wait "$child" || true; exit 0' INT TERM
while :; do
    refprotofl node . &
    child=$!
    code=0
    wait "$child" || code=$?
    case $code in 0|2|130) exit $code ;; esac  # stopped, or its settings must be corrected first
    sleep "${NODE_RETRY:-10}" &
    child=$!
    wait "$child" || true
done
"""


def _unit(node: int) -> str:
    return f"""[Unit]
Description=refprotofl node {node}
After=network-online.target
Wants=network-online.target

[Service]
# Change the paths to those of this kit and its environment, and the user to one that owns the kit and reads the data.
Environment=PATH=/opt/refprotofl/venv/bin:/usr/local/bin:/usr/bin:/bin
ExecStart=/opt/refprotofl/venv/bin/refprotofl node /opt/refprotofl/node-{node}
User=refprotofl
Restart=always
RestartSec=10
RestartPreventExitStatus=2
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths=/opt/refprotofl/node-{node}
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


def write_server_unit(site: Site) -> None:
    """Write a systemd unit for the site's server."""
    program, folder = Path(sys.executable).parent / "refprotofl", site.folder.absolute()
    text = SERVER_UNIT.format(program=program, site=folder)
    create_file(site.folder / "refprotofl-server.service", text.encode(), 0o644)


SERVER_UNIT = """[Unit]
Description=refprotofl server
After=network-online.target
Wants=network-online.target

[Service]
# Change the user to the one that owns the site, and the paths if you move it.
Type=forking
PIDFile={site}/server/server.pid
ExecStart={program} deploy start {site}
ExecStop={program} deploy stop {site}
User=refprotofl
Restart=on-failure
RestartSec=10
RestartPreventExitStatus=2
NoNewPrivileges=yes
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


CONTAINER = """# Build it with refprotofl's wheel and constraints.txt in this folder (in a checkout:
# pip wheel --no-deps --wheel-dir KIT . && cp constraints.txt KIT)
# podman build -t refprotofl-node .
# podman run -d --restart always -v "$PWD":/kit -v /path/to/data:/kit/data:ro refprotofl-node
FROM docker.io/library/python:3.11-slim
COPY refprotofl-*.whl constraints.txt /tmp/
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "$(grep ^torch== /tmp/constraints.txt)"
RUN pip install --no-cache-dir -c /tmp/constraints.txt "$(ls /tmp/refprotofl-*.whl)[EXTRA]"
CMD ["refprotofl", "node", "/kit"]
"""
