"""A SuperNode that gives up ends, so that its kit's start.sh can start it again; one that is online answers."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.fleet_pb2 import ActivateNodeResponse, PullMessagesResponse, RegisterNodeFleetResponse
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatResponse
from flwr.supercore import heartbeat
from flwr.supercore.constant import TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.start_client_internal import _insert_message, _push_messages
from tests.flower.loopback import BIN, QUIET, free_port

from refprotofl.engines.flower.supernode import Answering, rest_longer

PULL = "/v1/fleet/pull-messages"
ANSWERS = {
    "/v1/fleet/register-node": RegisterNodeFleetResponse(node_id=7).SerializeToString(),
    "/v1/fleet/activate-node": ActivateNodeResponse(node_id=7).SerializeToString(),
    "/v1/fleet/send-node-heartbeat": SendNodeHeartbeatResponse(success=True).SerializeToString(),
}


class LetsInAndFails(BaseHTTPRequestHandler):
    """As a server that breaks once the node has joined: what it answers then is final to Flower."""

    answers: ClassVar[dict[str, bytes]] = ANSWERS

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = self.answers.get(self.path)
        body = answer or b""
        self.send_response(200 if answer is not None else 500)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield int(made.server_address[1])
    made.shutdown()
    made.server_close()


@contextmanager
def supernode(server: int, folder: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "refprotofl.engines.flower.supernode", "--insecure", *more]
    place = ["--superlink", f"127.0.0.1:{server}", "--port", str(free_port())]
    env = {**os.environ, **QUIET, "FLWR_HOME": str(folder), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    with (folder / "log").open("wb") as log:
        node = subprocess.Popen([*command, *place], env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield node
    finally:
        if node.poll() is None:
            os.killpg(node.pid, signal.SIGKILL)
            node.wait(timeout=30)


def test_a_supernode_that_gives_up_ends(tmp_path: Path) -> None:
    with serving(LetsInAndFails) as server, supernode(server, tmp_path) as node:
        assert node.wait(timeout=60) == 1
    assert "SuperNode ID: 7" in (tmp_path / "log").read_text()  # it was in before


class HasNothing(LetsInAndFails):
    """As a server without a message for the node."""

    answers: ClassVar[dict[str, bytes]] = {**ANSWERS, PULL: PullMessagesResponse().SerializeToString()}
    looks: ClassVar[list[float]] = []

    def do_POST(self) -> None:
        if self.path == PULL:
            self.looks.append(time.monotonic())
        super().do_POST()


def test_a_node_looks_for_work_as_often_as_its_owner_says(tmp_path: Path) -> None:
    with serving(HasNothing) as server, supernode(server, tmp_path, "--node-config", "look-every=4.5") as node:
        until = time.monotonic() + 90
        while len(HasNothing.looks) < 3 and node.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
    apart = [after - before for before, after in pairwise(HasNothing.looks)]
    assert len(apart) >= 2
    assert min(apart) >= 4.4


def test_who_looks_less_often_says_less_often_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's 30 seconds, and twice those between two looks where that is more, in all that says or promises it."""
    told = [(heartbeat, "HEARTBEAT_DEFAULT_INTERVAL"), (fleet_http_connection, "HEARTBEAT_DEFAULT_INTERVAL")]
    for module, name in (*told, (start_client_internal, "_pull_and_store_message")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
    for seconds, beat in ((3.0, 30), (15.0, 30), (60.0, 120)):
        rest_longer(seconds)
        assert [getattr(module, name) for module, name in told] == [beat, beat]


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
