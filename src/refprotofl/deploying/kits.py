"""`deploy init`: the server's folder, and a kit for each node: all that it needs but its data and its private key."""

import json
import re
import shlex
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from refprotofl.basics.hosts import read_host, with_port
from refprotofl.deploying.files import write_new
from refprotofl.errors import DataError, InputError
from refprotofl.records.files import ensure_folder, write_whole
from refprotofl.records.inside import read_json

FILE = "deployment.json"
CONNECTION = "refprotofl"  # the name of the SuperLink in Flower's own config
QUIET = {  # Flower asks home by itself otherwise, and installs what an app names
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
    "RAY_USAGE_STATS_ENABLED": "0",
}
INSECURE = (
    "INSECURE: nothing is encrypted and nobody is who they say they are; anyone on the way can read and change what "
    "crosses, and anyone can join. For trying things out on one machine only."
)


@dataclass(frozen=True)
class Deployment:
    folder: Path
    host: str
    port: int
    nodes: int
    insecure: bool

    @property
    def server(self) -> Path:
        return self.folder / "server"

    @property
    def home(self) -> Path:
        """Flower's own folder, instead of one that all deployments of the user share."""
        return self.folder / "flower"

    @property
    def variables(self) -> dict[str, str]:
        """What every command of Flower's needs in its environment: it is quiet, and talks to this deployment."""
        return {**QUIET, "FLWR_HOME": str(self.home.absolute())}

    def kit(self, node: int) -> Path:
        return self.folder / "kits" / f"node-{node}"


def read_deployment(folder: Path) -> Deployment:
    try:
        told = read_json(folder / FILE)
        return Deployment(folder, str(told["host"]), int(told["port"]), int(told["nodes"]), bool(told["insecure"]))
    except OSError:
        raise InputError(f"{folder} is no deployment: refprotofl deploy init makes one.") from None
    except (ValueError, LookupError, TypeError):
        raise DataError(f"{folder / FILE} is damaged.") from None


def write_deployment(made: Deployment) -> None:
    """A new folder; nothing that is there is overwritten."""
    made = replace(made, host=read_host(made.host, "--host"))
    try:
        from refprotofl.deploying.certificates import write_certificates
    except ImportError:
        raise InputError("A deployment needs the extra flower: pip install 'refprotofl[flower]'.") from None
    if made.folder.exists() and (not made.folder.is_dir() or any(made.folder.iterdir())):
        raise InputError(f"{made.folder} is there already and not empty: use a new folder.")
    if app := _app_around(made.folder):
        raise InputError(
            f"{made.folder} would lie in {app}, and flwr run takes what lies there for the app: use a folder outside."
        )
    for folder in (made.folder, made.server, made.home):
        ensure_folder(folder, private=True)
    if not made.insecure:
        write_certificates(made.server, made.host)
    write_new(made.home / "config.toml", _connection(made).encode(), 0o600)
    for node in range(made.nodes):
        _write_kit(made, node)
    told = {"host": made.host, "port": made.port, "nodes": made.nodes, "insecure": made.insecure}
    write_new(made.folder / FILE, (json.dumps(told, indent=2) + "\n").encode(), 0o600)


def _app_around(folder: Path) -> Path | None:
    """The Flower app whose files these would be."""
    for parent in folder.resolve().parents:
        try:
            told = tomllib.loads((parent / "pyproject.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if "app" in told.get("tool", {}).get("flwr", {}):
            return parent
    return None


def _connection(made: Deployment) -> str:
    trust = "insecure = true" if made.insecure else f"root-certificates = {json.dumps(str(_certificate(made)))}"
    address = f'address = "127.0.0.1:{made.port}"'
    return f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n{address}\n{trust}\n'


def connect_to(made: Deployment, host: str) -> None:
    """From now on Flower's commands look for the SuperLink there."""
    path, head = made.home / "config.toml", f"[superlink.{CONNECTION}]\naddress = "
    address = json.dumps(with_port(host, made.port))
    try:
        told, found = re.subn(rf'{re.escape(head)}"[^"]*"', head + address, path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        told, found = "", 0
    if not found:
        raise DataError(f"{path} is damaged: it names no SuperLink {CONNECTION} and its address.")
    write_whole(path, told.encode())


def _certificate(made: Deployment) -> Path:
    return (made.server / "ca.crt").absolute()


def _write_kit(made: Deployment, node: int) -> None:
    kit = made.kit(node)
    ensure_folder(kit)
    if not made.insecure:
        write_new(kit / "ca.crt", (made.server / "ca.crt").read_bytes(), 0o644)
    for name, (text, mode) in {
        "node.toml": (_node_config(node), 0o644),
        "start.sh": (_start_script(made, node), 0o755),
        "refprotofl-node.service": (_unit(node), 0o644),
        "Containerfile": (CONTAINER, 0o644),
    }.items():
        write_new(kit / name, text.encode(), mode)


def _node_config(node: int) -> str:
    return f"""# What this node is told; only its owner decides it.
data-path = "data"        # a .npz file, a folder of class folders, or module:function
store = "store"           # its private state; only its owner can look into it
client = {node}                # which client of the experiment it is
# modules = "mine:Method" # code of the experiment that may be imported here
# uplink-budget = "20 kB" # what it sends in a round at most, where the experiment bounds it, too
# look-every = 3          # seconds between two looks for work; more where over fifty nodes share a server
# keep-runs = 3           # how many runs its store keeps state of
# hold-out = 0.2          # share kept for testing if the data come without test images
"""


def _start_script(made: Deployment, node: int) -> str:
    address = with_port(made.host, made.port)
    quiet = " ".join(f"{name}={value}" for name, value in QUIET.items())
    if made.insecure:
        trust, key = "--insecure", f"echo {shlex.quote(f'warning: {INSECURE}')} >&2"
    else:
        trust = "--root-certificates ca.crt --auth-supernode-private-key node.key"
        key = f"""
# The private key is made here and never leaves; its public part must be registered at the server once.
if [ ! -f node.key ]; then
    (umask 077; ssh-keygen -q -t ecdsa -b 384 -N "" -C node-{node} -f node.key)
    echo "Send node.key.pub to whoever runs the server; this node waits until it is registered."
fi
"""
    return f"""#!/bin/sh
# Runs this node until it is stopped; a node that was cut off cannot come back at once, so it tries again.
set -eu
cd "$(dirname "$0")"
if ! command -v flower-superexec > /dev/null; then
    echo "Flower is not on the PATH: activate the environment that has refprotofl[flower], then start again." >&2
    exit 127
fi
export {quiet} FLWR_HOME="$PWD/flower"
mkdir -p "$FLWR_HOME"
{key}
trap 'kill "$child" 2>/dev/null || true; wait "$child" || true; exit 0' INT TERM
while :; do
    python3 -m refprotofl.engines.flower.supernode {trust} \\
        --superlink {address} --port "${{NODE_PORT:-9094}}" --node-config node.toml &
    child=$!
    wait "$child" || true
    sleep "${{NODE_RETRY:-10}}" &
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
# Change the paths to where this kit and its environment lie, and the user to one that owns the kit and reads the data.
Environment=PATH=/opt/refprotofl/venv/bin:/usr/local/bin:/usr/bin:/bin
ExecStart=/opt/refprotofl/node-{node}/start.sh
User=refprotofl
Restart=always
RestartSec=10
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths=/opt/refprotofl/node-{node}
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


CONTAINER = """# Built here, with refprotofl's wheel: in a checkout, pip wheel --no-deps --wheel-dir THIS-FOLDER .
# podman build -t refprotofl-node .
# podman run -d --restart always -v "$PWD":/kit -v /where/the/data/is:/kit/data:ro refprotofl-node
FROM docker.io/library/python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends openssh-client && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch
COPY refprotofl-*.whl /tmp/
RUN pip install --no-cache-dir "$(ls /tmp/refprotofl-*.whl)[flower]"
WORKDIR /kit
CMD ["/kit/start.sh"]
"""
