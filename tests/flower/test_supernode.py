"""A SuperNode that gives up ends, so that its kit's start.sh can start it again."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from flwr.proto.fleet_pb2 import ActivateNodeResponse, RegisterNodeFleetResponse
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatResponse
from tests.flower.loopback import BIN, QUIET, free_port

ANSWERS: dict[str, Any] = {
    "/v1/fleet/register-node": RegisterNodeFleetResponse(node_id=7),
    "/v1/fleet/activate-node": ActivateNodeResponse(node_id=7),
    "/v1/fleet/send-node-heartbeat": SendNodeHeartbeatResponse(success=True),
}


class LetsInAndFails(BaseHTTPRequestHandler):
    """As a server that breaks once the node has joined: what it answers then is final to Flower."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = ANSWERS.get(self.path)
        body = answer.SerializeToString() if answer else b""
        self.send_response(200 if answer else 500)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), LetsInAndFails)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield int(made.server_address[1])
    made.shutdown()
    made.server_close()


def test_a_supernode_that_gives_up_ends(server: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "refprotofl.engines.flower.supernode", "--insecure"]
    place = ["--superlink", f"127.0.0.1:{server}", "--port", str(free_port())]
    env = {**os.environ, **QUIET, "FLWR_HOME": str(tmp_path), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    with (tmp_path / "log").open("wb") as log:
        node = subprocess.Popen([*command, *place], env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        assert node.wait(timeout=60) == 1
    finally:
        if node.poll() is None:
            os.killpg(node.pid, signal.SIGKILL)
            node.wait(timeout=30)
    assert "SuperNode ID: 7" in (tmp_path / "log").read_text()  # it was in before
