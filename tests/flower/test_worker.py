"""A node's resident worker: same answers, closed to others, replaced if it dies or hangs, gone with the SuperNode."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flower.deploying import node

from refprotofl.deploy.node import take_run
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.deploy.node_store import NodeStore
from refprotofl.engines.flower.messages import Envelope
from refprotofl.deploy.routes import Route
from refprotofl.engines.flower.worker import LONGEST_LOG, hand_over
from refprotofl.records.folder import read_experiment
from refprotofl.wire import decode, encode

RUN = "0" * 32


@pytest.fixture
def config(apart: Path, undisturbed: Path, tmp_path: Path) -> Iterator[NodeConfig]:
    """A node that knows of a run; its worker, if it gets one, is ended by its id."""
    config = NodeConfig.read(node(apart, tmp_path, 0, worker=True))
    told = {"run": RUN, "client": 0, "experiment": read_experiment(undisturbed).plain()}
    assert take_run(config, Envelope(told)).header == {"code": None}
    yield config
    for number in workers(config):
        os.kill(number, signal.SIGKILL)


def workers(config: NodeConfig) -> list[int]:
    """The processes that have this node's socket in their command line."""
    place = str(config.folder / "worker.sock").encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if place in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def request(phase: int) -> Envelope:
    return Envelope(Route(RUN, 0, 1, phase, 0, "join", True, "", []).header(), encode({}))


pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def test_a_worker_answers_is_replaced_when_it_dies_and_is_closed_to_others(config: NodeConfig) -> None:
    first = hand_over(config, "ask", request(1))
    assert first is not None
    assert first.header["code"] is None
    assert decode(first.payload) == {"samples": len(np.load(config.data_path)["y_train"])}
    (number,) = workers(config)
    assert stat.S_IMODE((config.folder / "worker.sock").stat().st_mode) == 0o600
    os.kill(number, signal.SIGKILL)
    assert hand_over(config, "ask", request(1)) == first
    assert workers(config) != [number]


def test_without_a_worker_the_node_answers_by_itself(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert hand_over(config, "ask", request(1)) is None


def test_a_worker_that_hangs_is_ended_and_replaced(config: NodeConfig) -> None:
    first = hand_over(config, "ask", request(1))
    (number,) = workers(config)
    os.kill(number, signal.SIGSTOP)
    begun = time.monotonic()
    assert hand_over(config, "ask", request(1), silent=6) == first
    assert time.monotonic() - begun < 60
    assert workers(config) != [number]


def test_a_worker_that_computes_for_long_is_waited_for(
    config: NodeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ask at once, and each answer takes longer than silence may: signs of life come to both."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow_images.py").write_text(
        "import time\nimport numpy as np\n\ndef images():\n    time.sleep(7)\n"
        f"    return dict(np.load({config.data_path!r}))\n"
    )
    slow = config.model_copy(update={"data_path": "slow_images:images"})
    told = NodeStore(config.folder, RUN).told
    assert told is not None
    again = Envelope({"run": RUN, "client": 0, "experiment": told.experiment.plain()})
    with ThreadPoolExecutor() as asking:
        given = list(asking.map(lambda _: hand_over(slow, "run", again, silent=6), range(2)))
    assert given == [Envelope({"code": None})] * 2
    assert len(workers(config)) == 1


def test_a_worker_keeps_its_log_short(config: NodeConfig) -> None:
    log = config.folder / "worker.log"
    log.write_bytes(b"old\n" * 500_000 + b"the last line\n")
    assert hand_over(config, "ask", request(1)) is not None
    until = time.monotonic() + 60
    while log.stat().st_size > LONGEST_LOG and time.monotonic() < until:
        time.sleep(0.1)
    assert log.stat().st_size <= LONGEST_LOG
    assert b"the last line\n" in log.read_bytes()  # at any moment: a reader sees the long one or the short one
    (number,) = workers(config)
    while "(deleted)" in os.readlink(f"/proc/{number}/fd/2") and time.monotonic() < until:
        time.sleep(0.1)
    for stream in (1, 2):  # what the worker says next goes there
        assert os.readlink(f"/proc/{number}/fd/{stream}") == str(log.resolve())


def test_a_client_app_whose_worker_answers_never_imports_torch(config: NodeConfig) -> None:
    """Flower starts such a process for every message."""
    code = (
        "import json, sys\n"
        "from flwr.app import Context, Message, RecordDict\n"
        "from flwr.supercore.task_identity import TaskIdentity\n"
        "from refprotofl.engines.flower.client_app import app\n"
        "from refprotofl.engines.flower.messages import Envelope, unwrap, wrap\n"
        "TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1\n"
        "config, header = map(json.loads, sys.argv[1:])\n"
        "message = Message(wrap(Envelope(header, bytes.fromhex(sys.stdin.read()))), 1, 'query.ask')\n"
        "message.metadata.__dict__['_message_id'] = '1'\n"
        "reply = app(message, Context(1, 1, config, RecordDict(), {}))\n"
        "print(unwrap(reply.content).header['code'], 'torch' in sys.modules)\n"
    )
    told = {name: value for name, value in config.plain().items() if value is not None}
    asked = request(1)
    command = [sys.executable, "-c", code, json.dumps(told), json.dumps(dict(asked.header))]
    done = subprocess.run(command, input=asked.payload.hex(), capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-1:] == ["None False"], done.stderr


def test_a_worker_goes_when_the_supernode_has_gone(config: NodeConfig) -> None:
    """A process in the SuperNode's place starts it, and ends."""
    told: dict[str, Any] = {name: value for name, value in config.plain().items() if value is not None}
    code = (
        "import json, sys\n"
        "from refprotofl.deploy.node_config import NodeConfig\n"
        "from refprotofl.engines.flower.messages import Envelope\n"
        "from refprotofl.engines.flower.worker import hand_over\n"
        "config, header = map(json.loads, sys.argv[1:])\n"
        "assert hand_over(NodeConfig.read(config), 'ask', Envelope(header)) is not None\n"
    )
    inner = [sys.executable, "-c", code, json.dumps(told), json.dumps(dict(request(1).header))]
    outer = "import subprocess, sys; raise SystemExit(subprocess.call(sys.argv[1:]))"
    assert subprocess.run([sys.executable, "-c", outer, *inner], timeout=120, check=False).returncode == 0
    until = time.monotonic() + 60
    while workers(config) and time.monotonic() < until:
        time.sleep(0.2)
    assert workers(config) == []
