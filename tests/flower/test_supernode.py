"""A SuperNode that gives up ends, so that its kit's start.sh can start it again; one that is online answers."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.fleet_pb2 import ActivateNodeResponse, RegisterNodeFleetResponse
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatResponse
from flwr.supercore.constant import TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.start_client_internal import _insert_message, _push_messages
from tests.flower.loopback import BIN, QUIET, free_port

from refprotofl.engines.flower.supernode import Answering

ANSWERS = {
    "/v1/fleet/register-node": RegisterNodeFleetResponse(node_id=7).SerializeToString(),
    "/v1/fleet/activate-node": ActivateNodeResponse(node_id=7).SerializeToString(),
    "/v1/fleet/send-node-heartbeat": SendNodeHeartbeatResponse(success=True).SerializeToString(),
}


class LetsInAndFails(BaseHTTPRequestHandler):
    """As a server that breaks once the node has joined: what it answers then is final to Flower."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = ANSWERS.get(self.path)
        body = answer or b""
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


class Node:
    """What a SuperNode has taken and its apps have said, and what it sends to the server with Flower's own hands."""

    def __init__(self) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
        self.store = ObjectStoreFactory().store()
        self.state = Answering(self.store)
        self.sent: list[Message] = []

    def take(self, word: str, run: int) -> Message:
        """A message that was taken, and its task."""
        message = Message(RecordDict({"word": ConfigRecord({"said": word})}), dst_node_id=7, message_type="query")
        message.metadata.__dict__["_run_id"] = run
        _insert_message(message, self.state, self.store)
        return message

    def begin(self, run: int) -> int:
        task: int | None = self.state.create_task(TaskType.CLIENT_APP, run)
        assert task is not None
        assert self.state.claim_task(task) is not None
        assert self.state.activate_task(task)
        return task

    def answer(self, message: Message) -> None:
        _insert_message(Message(message.content, reply_to=message), self.state, self.store)

    def push(self) -> list[str]:
        """What of its messages it answers, until it would take the next one."""

        def send(message: Message, *_: object) -> tuple[set[str], str]:
            self.sent.append(message)
            return set(), ""

        before = len(self.sent)
        _push_messages(self.state, self.store, send, lambda *_: None)
        return [one.metadata.reply_to_message_id for one in self.sent[before:]]


def test_an_answer_that_was_left_is_not_sent_instead_of_the_one_that_is_waited_for() -> None:
    """The app answered while Flower could not say that the message had come; then the run was over."""
    node = Node()
    old = node.take("of a run that has ended", 1)
    node.answer(old)
    node.state.delete_messages(message_ids=[old.metadata.message_id])
    new = node.take("of the run that goes on", 2)
    app = threading.Timer(1.0, node.answer, (new,))
    app.start()
    begun = time.monotonic()
    assert node.push() == [old.metadata.message_id, new.metadata.message_id]
    assert time.monotonic() - begun >= 1.0
    app.join()
    assert node.state.msg_store == {}


def test_a_message_that_was_ignored_holds_up_nobody_and_its_app_is_given_up() -> None:
    """Its run ended while it was taken: Flower says so in its log, and leaves it and the app where they are."""
    node = Node()
    task = node.begin(1)
    old = node.take("of a run that has ended", 1)
    node.begin(2)
    new = node.take("of the run that goes on", 2)
    node.answer(new)
    assert sorted(node.push()) == sorted([old.metadata.message_id, new.metadata.message_id])
    assert node.state.msg_store == {}
    assert task not in node.state.task_token_store  # the app is heard no more


def test_an_app_that_has_answered_may_take_its_time_to_end() -> None:
    node = Node()
    task = node.begin(1)
    message = node.take("do it", 1)
    node.answer(message)
    assert node.push() == [message.metadata.message_id]
    node.begin(1)
    assert task in node.state.task_token_store


@pytest.mark.parametrize("fetched", [False, True])
@pytest.mark.parametrize("how", [SubStatus.FAILED, SubStatus.COMPLETED])
def test_an_app_that_ends_without_an_answer_is_answered_for(fetched: bool, how: str) -> None:
    node = Node()
    message, task = node.take("do it", 1), node.begin(1)
    if fetched:
        assert len(node.state.get_messages_legacy(run_ids=[1], is_reply=False)) == 1
    assert node.state.finish_task(task, how, "")
    assert node.push() == [message.metadata.message_id]
    assert error(node.sent[0]) == ErrorCode.CLIENT_APP_CRASHED


def test_an_app_that_shows_no_sign_of_life_is_answered_for_though_it_never_fetched_its_message() -> None:
    node = Node()
    message, task = node.take("do it", 1), node.begin(1)
    record = node.state.task_token_store[task]
    record.active_until = record.active_until.replace(year=2000)
    assert node.push() == [message.metadata.message_id]
    assert error(node.sent[0]) == ErrorCode.CLIENT_APP_CRASHED


def test_an_answer_is_sent_once_and_as_it_is() -> None:
    node = Node()
    message, task = node.take("do it", 1), node.begin(1)
    node.answer(message)
    node.state.finish_task(task, SubStatus.FAILED, "after it has answered")
    assert node.push() == [message.metadata.message_id]
    assert not node.sent[0].has_error()
    assert node.state.msg_store == {}


def error(message: Message) -> int:
    assert message.has_error()
    code: int = message.error.code
    return code
