"""How many nodes one server holds: light nodes without torch, over real HTTP, against a real SuperLink and ServerApp.

    python tools/fleet.py --nodes 10,100
    python tools/fleet.py --nodes 1000 --rounds 2 --idle 60

Every node answers with what a real client answered in a small simulation, so the server reads, checks and folds real
uploads. It runs in a checkout that has the extra flower, ends by itself, and prints a row for each number of nodes.
"""

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
HANDS = 32  # threads that the nodes of a process share
BLINK = 0.05  # seconds that a thread sleeps if no node has anything to do
THERE = "all nodes are there"
SUPERLINKS = {
    "ours": [sys.executable, "-m", "refprotofl.engines.flower.superlink"],  # which deploy start starts
    "flowers": [str(BIN / "flower-superlink")],
}
SETTINGS = {"preset": "quick", "evaluate.every": 100, "evaluate.clients": 1, "train.local-epochs": 1}


def record_answers(folder: Path) -> dict[str, bytes]:
    """What a client answers to each verb, and `public.npz` for the server."""
    from refprotofl.data import load_federated
    from refprotofl.data.exporting import export_federation
    from refprotofl.experiment.presets import load_experiment
    from refprotofl.simulation.run import Watcher, run

    answers: dict[str, bytes] = {}

    class Listening(Watcher):
        def crossed(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
            if direction == "up" and client == 0:
                answers[phase] = data

    keys = [f"{name}={value}" for name, value in SETTINGS.items() if name != "preset"]
    base = load_experiment(preset="quick", settings=["clients=3", "rounds=2", *keys])
    export_federation(load_federated(base), folder / "data")
    apart = [f"{name}.dataset={folder / 'data' / name}.npz" for name in ("public", "test")]
    whole = load_experiment(preset="quick", settings=["clients=3", "rounds=2", *keys, *apart, "evaluate.clients=3"])
    run(whole, out=folder / "simulated", watcher=Listening())
    return answers


class LightNodes:
    """So many nodes in this process, each with a key, a connection and a heartbeat of its own."""

    def __init__(self, address: str, count: int, idle: float, answers: dict[str, bytes]) -> None:
        from flwr.supercore.task_identity import TaskIdentity
        from refprotofl.engines.flower.supernode import rest_longer

        rest_longer(idle)
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
        self._address, self._count, self._idle, self._answers = address, count, idle, answers
        self._due: queue.PriorityQueue[tuple[float, int]] = queue.PriorityQueue()
        self._nodes: list[Any] = []

    def serve(self) -> None:
        """Until this process is ended."""
        from flwr.supernode.fleet_http_connection import http_request_response

        with ExitStack() as stack:
            for number in range(self._count):
                self._nodes.append(stack.enter_context(http_request_response(self._address, insecure=True)))
                self._due.put((time.monotonic(), number))
            print(THERE, flush=True)
            hands = [threading.Thread(target=self._work, daemon=True) for _ in range(HANDS)]
            for hand in hands:
                hand.start()
            for hand in hands:
                hand.join()

    def _work(self) -> None:
        while True:
            moment, number = self._due.get()
            if moment > time.monotonic():
                self._due.put((moment, number))
                time.sleep(BLINK)
                continue
            try:
                busy = self._answer_one(*self._nodes[number])
            except Exception as problem:  # a run that has ended, a server that is gone: it looks again
                print(type(problem).__name__, problem, flush=True)
                busy = False
            self._due.put((time.monotonic() + (0.0 if busy else self._idle), number))

    def _answer_one(self, node: int, receive: Any, send: Any, get_run: Any, get_fab: Any, *objects: Any) -> bool:
        from flwr.app import Message
        from flwr.supercore.inflatable.inflatable_object import (
            get_all_nested_objects,
            get_object_tree,
            iterate_object_tree,
            no_object_id_recompute,
        )
        from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects

        from refprotofl.engines.flower.messages import unwrap, wrap

        pull, push, confirm = objects
        received = receive()
        if received is None:
            return False
        bare, tree = received
        run, name = bare.metadata.run_id, bare.metadata.message_id
        wanted = [one.object_id for one in iterate_object_tree(tree)]
        contents = pull_objects(wanted, pull_object_fn=lambda one: pull(run, one), max_concurrent_pulls=1)
        confirm(run, name)
        asked = inflate_object_from_contents(name, contents)
        action = bare.metadata.message_type.partition(".")[2]
        reply = Message(wrap(self._answer(action, unwrap(asked.content))), reply_to=bare)
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            made, parts = get_object_tree(reply), get_all_nested_objects(reply)
            missing, session = send(reply, made, 0.0)
            for one in missing:
                push(run, session, one, parts[one].deflate())
        return True

    def _answer(self, action: str, envelope: Any) -> Any:
        from refprotofl.deploy.routes import PROTOCOL, Answered, Route
        from refprotofl.engines.flower.messages import Envelope

        if action == "hello":
            return Envelope({"protocol": PROTOCOL, "client": None})
        if action == "run":
            return Envelope({"code": None})
        route = Route.read(envelope.header)
        return Envelope(Answered.to(route, state="0" * 64).header(), self._answers[route.verb])


def usage(process: int) -> dict[str, float]:
    """CPU seconds, and the highest memory in MB, of a process that lives."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    peak = next(line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {"cpu": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), "mb": int(peak.split()[1]) / 1000}


def find(program: str, below: str) -> int | None:
    """The process of this program whose command line names `below`."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(word.endswith(program) for word in words[:2]) and any(below in word for word in words):
            return int(entry.parent.name)
    return None


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


def measure(count: int, given: argparse.Namespace, folder: Path, answers: Path, port: int) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT / "src"))
    from refprotofl.deploy.kits import QUIET
    from refprotofl.records.rounds import read_traffic

    home, out, address = folder / f"home-{count}", folder / f"run-{count}", f"127.0.0.1:{port}"
    home.mkdir()
    config = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{address}"\ninsecure = true\n'
    (home / "config.toml").write_text(config)
    env = {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    told = {**SETTINGS, "clients": count, "rounds": given.rounds, "out": str(out)}
    told |= {"public.dataset": str(folder / "data" / "public.npz"), "test.dataset": str(folder / "data" / "test.npz")}
    run_config = " ".join(f"{name}={json.dumps(value)}" for name, value in told.items())
    where = ["--address", address, "--answers", str(answers)]
    place = ["--host", "127.0.0.1", "--port", str(port)]
    if given.database:
        place += ["--database", str(folder / f"state-{count}.db")]
    programs = {
        "superlink": [*SUPERLINKS[given.superlink], "--insecure", *place],
        "nodes": [sys.executable, __file__, "--serve", str(count), "--idle", str(given.idle), *where],
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, command in programs.items():
            log = folder / f"{name}-{count}.log"
            with log.open("wb") as writing:
                started.append(subprocess.Popen(command, env=env, cwd=folder, stdout=writing, stderr=writing))
            wait_for({"superlink": "Uvicorn running", "nodes": THERE}[name], log)
        subprocess.run([str(BIN / "flwr"), "run", str(ROOT), "here", "--run-config", run_config], env=env, check=True)
        until, first, used = time.monotonic() + given.seconds, {}, {}
        while time.monotonic() < until and not (out / "summary.json").exists():
            server = find("flwr-serverapp", address)
            for name, process in (("superlink", started[0].pid), ("serverapp", server)):
                if process is not None and Path(f"/proc/{process}").exists():
                    used[name] = usage(process)
            if not first and rounds_in(out):
                first = {name: both["cpu"] for name, both in used.items()}
            time.sleep(0.5)
        seen = rounds_in(out)
    finally:
        server = find("flwr-serverapp", address)
        if server is not None:  # it would go on to ask for its SuperLink
            os.kill(server, signal.SIGTERM)
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
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
        "seconds_of_rounds": [round(event["seconds"], 1) for event in seen],
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
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3600, help="after which a run is given up")
    parser.add_argument(
        "--idle", type=float, default=3.0, help="seconds between two looks of a node for work: its look-every"
    )
    parser.add_argument("--database", action="store_true", help="let the SuperLink keep its state on disk")
    parser.add_argument(
        "--superlink", choices=SUPERLINKS, default="ours", help="flowers: as Flower's own command has it"
    )
    parser.add_argument("--port", type=int, default=39_391)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--answers", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        kept = {name: bytes.fromhex(text) for name, text in json.loads(given.answers.read_text()).items()}
        LightNodes(given.address, given.serve, given.idle, kept).serve()
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        answers = folder / "answers.json"
        answers.write_text(json.dumps({name: data.hex() for name, data in record_answers(folder).items()}))
        for number, count in enumerate(map(int, given.nodes.split(","))):
            row = measure(count, given, folder, answers, given.port + number)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
