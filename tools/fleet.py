"""Measure the capacity of one server: light nodes without torch, over TLS, against a real site.

    python tools/fleet.py --transport mqtt --nodes 3,100,1000
    python tools/fleet.py --nodes 10,100
    python tools/fleet.py --nodes 1000 --rounds 2 --idle 60

Every node has an admitted key and answers with what a real client answered in a small simulation, so the server reads,
checks and aggregates real uploads. It runs in a checkout that has the transport's extra, ends by itself, and prints a
row for each number of nodes.
"""

import argparse
import json
import os
import queue
import resource
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

if TYPE_CHECKING:
    from refprotofl.deploy.site import Site

THREADS = 32  # shared by the nodes of a process
BLINK = 0.05  # seconds that a thread sleeps if no node has anything to do
THERE = "all nodes are there"
SETTINGS = {"preset": "quick", "evaluate.every": 100, "evaluate.clients": 1, "train.local-epochs": 1}


def record_answers(folder: Path) -> dict[str, bytes]:
    """Return what a client answers to each verb, and write `public.npz` for the server."""
    from refprotofl.data import load_federated
    from refprotofl.data.client_files import export_federation
    from refprotofl.experiment.presets import load_experiment
    from refprotofl.federation import Callback, run

    answers: dict[str, bytes] = {}

    class Listening(Callback):
        def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
            if direction == "up" and client == 0:
                answers[phase] = data

    keys = [f"{name}={value}" for name, value in SETTINGS.items() if name != "preset"]
    base = load_experiment(preset="quick", settings=["clients=3", "rounds=2", *keys])
    export_federation(load_federated(base), folder / "data")
    apart = [f"{name}.dataset={folder / 'data' / name}.npz" for name in ("public", "test")]
    whole = load_experiment(preset="quick", settings=["clients=3", "rounds=2", *keys, *apart, "evaluate.clients=3"])
    run(whole, out=folder / "simulated", callback=Listening())
    return answers


class LightNodes:
    """Nodes in this process, each with a key, a connection and a heartbeat of its own."""

    def __init__(self, address: str, authority: bytes, keys: list[str], idle: float, answers: dict[str, bytes]) -> None:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        from refprotofl.engines.flower.fleet_client import FleetClient

        self._idle, self._answers = idle, answers
        self._due: queue.PriorityQueue[tuple[float, int]] = queue.PriorityQueue()
        loaded = [load_pem_private_key(one.encode(), None) for one in keys]
        self._nodes = [FleetClient(address, authority, key, idle) for key in loaded]

    def serve(self) -> None:
        """Serve until this process is ended."""
        for number, node in enumerate(self._nodes):
            node.activate()
            self._due.put((time.monotonic(), number))
        print(THERE, flush=True)
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        while True:
            moment, number = self._due.get()
            if moment > time.monotonic():
                self._due.put((moment, number))
                time.sleep(BLINK)
                continue
            try:
                busy = self._answer_one(self._nodes[number])
            except Exception as problem:  # a run that has ended, a server that is gone: it looks again
                print(type(problem).__name__, problem, flush=True)
                busy = False
            self._due.put((time.monotonic() + (0.0 if busy else self._idle), number))

    def _answer_one(self, node: Any) -> bool:
        from refprotofl.engines.flower.records import unwrap

        message = node.pull(lambda do: do())
        if message is None:
            return False
        action = message.metadata.message_type.partition(".")[2]
        node.reply(message, light_answer(self._answers, action, unwrap(message.content)), lambda do: do())
        return True


class LightMqttNodes:
    """Nodes in this process, each with a key and a connection of its own, all served by one thread."""

    def __init__(self, address: tuple[str, int], folder: Path, users: list[str], answers: dict[str, bytes]) -> None:
        from refprotofl.engines.mqtt.client import Identity, PahoLink
        from refprotofl.engines.mqtt.link import Topics
        from refprotofl.engines.mqtt.node import MqttNode
        from refprotofl.engines.mqtt.parts import ContentStore

        class Link(PahoLink):
            """A link without a thread of its own."""

            def _start(self) -> None:
                self._client.reconnect()

        contents = ContentStore(folder / "content")  # the same for all, as in none of them is private
        self._nodes: list[tuple[Any, Any]] = []  # paho's client, and the node
        for user in users:
            files = Identity(folder / "ca.crt", folder / f"{user}.crt", folder / f"{user}.key")
            link = Link(address, files, user, will=Topics().presence(user), keep_alive=1200)
            node = MqttNode(link, user, lambda action, envelope: light_answer(answers, action, envelope), contents)
            self._nodes.append((link._client, node))

    def serve(self) -> None:
        """Serve until this process is ended."""
        watched = selectors.DefaultSelector()
        for client, node in self._nodes:
            watched.register(client.socket(), selectors.EVENT_READ, (client, node))
        said = False
        while True:
            for key, _ in watched.select(BLINK):
                client, node = key.data
                client.loop_read()
                while node.work(0):
                    pass
            for client, _ in self._nodes:
                if client.want_write():
                    client.loop_write()
            if not said and all(client.is_connected() for client, _ in self._nodes):
                print(THERE, flush=True)
                said = True


def light_answer(answers: dict[str, bytes], action: str, envelope: Any) -> Any:
    from refprotofl.deploy.headers import PROTOCOL, Answered, Route
    from refprotofl.deploy.transport import Envelope

    if action == "hello":
        return Envelope({"protocol": PROTOCOL, "name": ""})
    if action != "ask":
        return Envelope({"code": None})
    route = Route.read(envelope.header)
    return Envelope(Answered.to(route, state="0" * 64).header(), answers[route.verb])


def usage(process: int) -> dict[str, float]:
    """CPU seconds, and the highest memory in MB, of a process that lives."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    peak = next(line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {"cpu": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), "mb": int(peak.split()[1]) / 1000}


def find(*words: str) -> int | None:
    """Return the process whose command line has all these words."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if all(word in found for word in words):
            return int(entry.parent.name)
    return None


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def wait_for(words: str, log: Path, seconds: float = 300) -> None:
    until = time.monotonic() + seconds
    while words not in log.read_text(errors="replace"):
        if time.monotonic() > until:
            raise SystemExit(f"{log.name} never said: {words}")
        time.sleep(0.2)


def rounds_in(out: Path) -> list[dict[str, Any]]:
    """The rounds that are committed so far."""
    lines = (out / "events.jsonl").read_bytes().splitlines() if (out / "events.jsonl").exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"}") and b'"event": "round"' in line[:200]]


def make_site(folder: Path, count: int, transport: str) -> "Site":
    from refprotofl.deploy.site import SiteKeys, create_site

    port, operator_port = free_ports()
    room = 2 * count + 100  # all of them come from one address
    keys = SiteKeys(
        host="127.0.0.1",
        port=port,
        operator_port=operator_port,
        nodes=count,
        transport="mqtt" if transport == "mqtt" else "flower",
        max_connections=room,
        max_connections_per_address=room,
    )
    return create_site(folder, keys)


def admit_all(site: "Site", count: int) -> list[str]:
    """Make a key for each node, and admit it; return the private ones."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    from refprotofl.deploy.admission import Admissions, Admitted, fingerprint, write_admissions

    operator, admitted, made = site.transport.connect(site), dict[str, Admitted](), list[str]()
    for number in range(count):
        key = ec.generate_private_key(ec.SECP384R1())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        operator.register(f"node-{number}", public)
        admitted[f"node-{number}"] = Admitted(fingerprint(public), number)
        made.append(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())
    write_admissions(site, Admissions(admitted, []))
    return made


def prepare_mqtt(site: "Site", keys: list[str], folder: Path) -> list[str]:
    """Write the nodes' keys and certificates where their process finds them; return their user names."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    from refprotofl.deploy.admission import fingerprint
    from refprotofl.deploy.site import broker_user

    folder.mkdir()
    (folder / "ca.crt").write_bytes((site.server / "ca.crt").read_bytes())
    users = []
    for one in keys:
        key = load_pem_private_key(one.encode(), None).public_key()
        mark = fingerprint(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        users.append(broker_user(mark))
        (folder / f"{users[-1]}.key").write_text(one)
        (folder / f"{users[-1]}.crt").write_bytes(site.certificate(mark).read_bytes())
    return users


def serving_processes(site: "Site", server: int) -> dict[str, int | None]:
    """Return the processes to measure, by name."""
    if site.keys.transport == "flower":
        run = find("refprotofl.engines.flower.run_process", str(site.folder.absolute()))
        return {"superlink": server, "run": run}
    run = find("refprotofl.engines.mqtt.run_process", str(site.folder.absolute()))
    return {"broker": json.loads(site.broker_process.read_text())[0], "server": server, "run": run}


def measure(count: int, given: argparse.Namespace, folder: Path, answers: Path) -> dict[str, Any]:
    from refprotofl.deploy.server_process import QUIET, start, stop
    from refprotofl.records.events import read_traffic

    site, out = make_site(folder / f"site-{count}", count, given.transport), folder / f"run-{count}"
    found = {**SETTINGS, "clients": count, "rounds": given.rounds}
    found |= {f"{name}.dataset": str(folder / "data" / f"{name}.npz") for name in ("public", "test")}
    settings = shlex.join(f"{name}={value}" for name, value in found.items() if name != "preset")
    server, _ = start(site)
    nodes = None
    try:
        keys = folder / f"keys-{count}.json"
        made = admit_all(site, count)
        mqtt = given.transport == "mqtt"
        keys.write_text(json.dumps(prepare_mqtt(site, made, folder / f"kits-{count}") if mqtt else made))
        log = folder / f"nodes-{count}.log"
        words = ["--serve", str(site.folder), "--keys", str(keys), "--answers", str(answers), "--idle", str(given.idle)]
        with log.open("wb") as writing:
            command = [sys.executable, __file__, *words]
            nodes = subprocess.Popen(command, env={**os.environ, **QUIET}, stdout=writing, stderr=writing)
        wait_for(THERE, log)
        operator = site.transport.connect(site)
        run = operator.start({"preset": "quick", "set": settings, "out": str(out)})
        until, first, used = time.monotonic() + given.seconds, {}, {}
        while time.monotonic() < until and not (out / "summary.json").exists():
            for name, number in serving_processes(site, server).items():
                if number is not None and Path(f"/proc/{number}").exists():
                    used[name] = usage(number)
            if not first and rounds_in(out):
                first = {name: both["cpu"] for name, both in used.items()}
            status = operator.run(run)
            if status.finished and not (out / "summary.json").exists():
                raise SystemExit(f"The run ended as {status.status}: {status.reason}")
            time.sleep(0.1)
        seen = rounds_in(out)
    finally:
        stop(site)
        if nodes is not None:
            nodes.terminate()
            try:
                nodes.wait(30)
            except subprocess.TimeoutExpired:
                nodes.kill()
    if len(seen) < 2:
        seconds = [round(event["seconds"], 1) for event in seen]
        return {"nodes": count, "rounds": len(seen), "seconds_of_rounds": seconds, **used}
    last, answers_since = seen[-1], sum(2 * len(event["participants"]) for event in seen[1:])
    payload = sum(row["payload_bytes"] for row in read_traffic(last) if row["purpose"] == "training")
    spent = last.get("spent", {})
    return {
        "nodes": count,
        "rounds": len(seen),
        "answered": len(last["participants"]),
        "seconds_of_rounds": [round(event["seconds"], 2) for event in seen],
        "server_s": round(spent.get("server", 0.0), 3),
        "payload_mb": round(payload / 1e6, 2),
        **{f"{name}_mb": round(both["mb"]) for name, both in used.items()},
        **{
            f"{name}_cpu_ms_per_answer": round(1000 * (used[name]["cpu"] - cpu) / answers_since, 1)
            for name, cpu in first.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="10,100", help="numbers of nodes, with commas between")
    parser.add_argument("--transport", choices=("flower", "mqtt"), default="flower")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3600, help="after which a run is given up")
    parser.add_argument(
        "--idle", type=float, default=3.0, help="seconds between two looks of a node for work: its look-every"
    )
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--keys", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--answers", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        from refprotofl.deploy.site import read_site

        site = read_site(given.serve)
        kept = {name: bytes.fromhex(text) for name, text in json.loads(given.answers.read_text()).items()}
        authority = (site.server / "ca.crt").read_bytes()
        keys = json.loads(given.keys.read_text())
        if site.keys.transport == "mqtt":
            resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
            kits = given.keys.with_name(given.keys.stem.replace("keys", "kits"))
            LightMqttNodes(("127.0.0.1", site.keys.port), kits, keys, kept).serve()
        LightNodes(f"127.0.0.1:{site.keys.port}", authority, keys, given.idle, kept).serve()
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        answers = folder / "answers.json"
        answers.write_text(json.dumps({name: data.hex() for name, data in record_answers(folder).items()}))
        for count in map(int, given.nodes.split(",")):
            row = measure(count, given, folder, answers)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
