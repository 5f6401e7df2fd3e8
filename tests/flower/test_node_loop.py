"""A node's loop: it connects again with growing pauses, answers what it is asked, and runs installed code only."""

import io
import re
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from tests.flower.loopback import free_port

from refprotofl.deploy.headers import PROTOCOL
from refprotofl.deploy.node_config import NodeConfig
from refprotofl.deploy.transport import Envelope
from refprotofl.engines.flower import node_loop
from refprotofl.engines.flower.bundle import build_bundle
from refprotofl.engines.flower.fleet_client import Again
from refprotofl.engines.flower.node_loop import FIRST_PAUSE, LONGEST_PAUSE, NodeLoop, serve
from refprotofl.engines.flower.records import wrap

WAITING = "This node's key is not admitted."


class End(BaseException):
    """Ends a loop that would serve for ever."""


def status(code: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("", request=httpx.Request("POST", "http://x"), response=httpx.Response(code))


def hello(run: int = 1) -> Message:
    return message(wrap(Envelope({})), "query.hello", run)


def message(content: RecordDict, kind: str, run: int) -> Message:
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
    made = Message(content, dst_node_id=7, message_type=kind)
    made.metadata.__dict__["_message_id"], made.metadata.__dict__["_run_id"] = "1", run
    return made


class FakeClient:
    """Does what `script` says, one after the other: an exception is raised, a message pulled, None is no message.

    `links`: what happens to each try to send an answer; None lets it pass.
    """

    def __init__(self, script: list[Any], links: list[Exception | None] | None = None, bundle: bytes = b"") -> None:
        self.script, self.links, self.app = script, links or [], bundle or build_bundle()
        self.connections = self.closed = self.bundles = 0
        self.sent: list[Envelope] = []

    def connect(self) -> Any:
        self.connections += 1
        return self

    def _next(self) -> Any:
        if not self.script:
            raise End
        found = self.script.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    def activate(self) -> None:
        self._next()

    def pull(self, again: Again) -> Any:
        return self._next()

    def bundle(self, run: int) -> bytes:
        self.bundles += 1
        return self.app

    def reply(self, message: Message, envelope: Envelope, again: Again) -> bool:
        def send() -> None:
            problem = self.links.pop(0) if self.links else None
            if problem is not None:
                raise problem
            self.sent.append(envelope)

        again(send)
        return True

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    given = {"server": "127.0.0.1:1", "name": "node-0", "data-path": "data", "store": "store", "look-every": 3}
    return NodeConfig.read(given, tmp_path)


Ran = Callable[[FakeClient], tuple[list[str], list[float]]]


@pytest.fixture
def ran(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Runs a loop until its script ends; returns what it said, and its pauses without their random part."""
    monkeypatch.setattr("refprotofl.engines.flower.node_loop.random.uniform", lambda low, high: 1.0)

    def run(client: FakeClient) -> tuple[list[str], list[float]]:
        said: list[str] = []
        pauses: list[float] = []
        with pytest.raises(End):
            NodeLoop(config, client.connect, WAITING, said.append, pauses.append).run()
        return said, pauses

    return run


def test_before_admission_there_is_one_sentence_and_pauses_that_grow(ran: Ran) -> None:
    client = FakeClient([status(401)] * 8)
    said, pauses = ran(client)
    assert said == [WAITING]
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]
    assert pauses[0] == FIRST_PAUSE
    assert max(pauses) == LONGEST_PAUSE
    assert client.connections == client.closed == 9


def test_a_node_that_was_just_cut_off_is_back_soon(ran: Ran) -> None:
    """The server takes a killed node for online for up to a minute; then every pause counts."""
    said, pauses = ran(FakeClient([status(412)] * 9))
    assert len(said) == 1
    assert pauses == [2, 4, 8, 8, 8, 8, 8, 8, 8]


def test_an_admitted_node_says_so_and_starts_with_short_pauses_after_its_next_loss(ran: Ran) -> None:
    client = FakeClient([status(401), status(401), None, status(401), status(401)])
    said, pauses = ran(client)
    assert said == [WAITING, "Connected to 127.0.0.1:1 as node-0.", WAITING]
    assert pauses == [2, 4, 2, 4]


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (httpx.ConnectError("Connection refused"), r"Cannot reach 127\.0\.0\.1:1 \(ConnectError: Connection refused\)"),
        (httpx.ReadTimeout(""), r"Cannot reach 127\.0\.0\.1:1 \(ReadTimeout\)\. Trying again\."),
        (status(412), "another one with the same key is online"),
        (status(500), r"refused a request \(HTTP 500\)"),
        (ValueError("Invalid protobuf response payload"), "127.0.0.1:1 sent an invalid answer"),
    ],
)
def test_a_refusal_is_printed_and_the_node_tries_again(ran: Ran, problem: Exception, words: str) -> None:
    client = FakeClient([problem, problem, None, hello()])
    said, pauses = ran(client)
    assert len(said) == 2
    assert re.search(words, said[0])
    assert pauses == [2, 4]
    assert len(client.sent) == 1


def test_work_is_looked_for_more_seldom_the_longer_there_is_none(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_loop, "ACTIVE", 0.0)
    _, pauses = ran(FakeClient([None, *[None] * 12, hello(), None, None]))
    assert pauses[0] == 0.1
    assert pauses[:3] == pytest.approx([0.1, 0.15, 0.225])
    assert max(pauses) == pauses[11] == 3  # look-every
    assert pauses[12] == 0.1  # after a message


def test_while_a_run_is_under_way_work_is_looked_for_more_often(ran: Ran) -> None:
    _, pauses = ran(FakeClient([None, hello(), *[None] * 20]))
    assert max(pauses) == 0.5


def test_a_link_that_breaks_for_a_while_does_not_cost_the_connection(ran: Ran) -> None:
    """The server still takes the node for online: to come online once more it would have to wait."""
    down = httpx.ConnectError("Network is unreachable")
    client = FakeClient([None, None, down, down, hello()])
    said, pauses = ran(client)
    assert client.connections == 1
    assert len(client.sent) == 1
    assert pauses[1:] == [2, 4]
    assert [line.partition(" (")[0] for line in said[1:]] == [
        "The link to 127.0.0.1:1 is down",
        "The link to 127.0.0.1:1 is back.",
    ]


def test_an_answer_is_sent_again_after_a_broken_link(ran: Ran) -> None:
    client = FakeClient([None, hello(), hello()], links=[httpx.ConnectError("no"), httpx.ReadError("no"), None, None])
    said, pauses = ran(client)
    assert client.sent == [Envelope({"protocol": PROTOCOL, "name": "node-0"})] * 2
    assert pauses == [2, 4]
    assert (client.connections, len(said)) == (1, 4)  # connected, down for two reasons, back


def test_an_answer_that_cannot_be_sent_for_long_is_given_up_and_the_node_connects_anew(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server asks again, and the answer is on the node's disk."""
    monkeypatch.setattr(NodeLoop._again, "__defaults__", (-1.0,))
    client = FakeClient([None, hello(), None, hello()], links=[httpx.ConnectError("no")])
    ran(client)
    assert client.connections == 2
    assert len(client.sent) == 1


@pytest.mark.parametrize("code", [403, 404, 413])
def test_a_refused_answer_is_reported_and_the_node_continues(ran: Ran, code: int) -> None:
    client = FakeClient([None, hello(), hello()], links=[status(code)])
    said, _ = ran(client)
    assert said[1:] == ["An answer was not accepted: its run may have ended."]
    assert (client.connections, len(client.sent)) == (1, 1)


def test_a_key_that_is_revoked_in_mid_run_is_reported_in_one_sentence(ran: Ran) -> None:
    client = FakeClient([None, hello(), status(401)], links=[status(401)])
    assert ran(client)[0][1:] == [WAITING]
    assert client.sent == []


def archive(**files: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        for name, text in files.items():
            packed.writestr(name.replace("__", "."), text)
    return made.getvalue()


HOSTILE = archive(
    pyproject__toml='[tool.flwr.app.components]\nserverapp = "evil:app"\nclientapp = "evil:app"\n',
    evil__py="open('/tmp/owned', 'w')",
)


@pytest.mark.parametrize(
    ("bundle", "words"),
    [
        (HOSTILE, "it contains 'evil.py'"),
        (archive(pyproject__toml='[tool.flwr.app.components]\nclientapp = "os:system"\n'), "its components are not"),
        (b"no archive", "it is not a Flower app"),
        (archive(pyproject__toml="["), "it is not a Flower app"),
    ],
)
def test_an_app_with_code_is_refused_with_a_sentence_and_nothing_of_it_is_unpacked(
    ran: Ran,
    bundle: bytes,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    handled: list[str] = []
    monkeypatch.setattr(node_loop, "handle", lambda config, action, envelope: handled.append(action))
    monkeypatch.setattr(zipfile.ZipFile, "extract", None)
    monkeypatch.setattr(zipfile.ZipFile, "extractall", None)
    client = FakeClient([None, hello(), hello()], bundle=bundle)
    ran(client)
    assert handled == []
    assert [sent.header for sent in client.sent] == [{"protocol": PROTOCOL, "code": "input"}] * 2
    found = capsys.readouterr().out
    assert f"The run's app is refused: {words}" in found
    assert "A node runs installed code only." in found
    assert list(tmp_path.iterdir()) == []
    assert client.bundles == 1  # it is looked at once for each run


def test_the_app_of_every_run_is_looked_at(ran: Ran) -> None:
    client = FakeClient([None, hello(1), hello(1), hello(2)])
    ran(client)
    assert client.bundles == 2
    assert len(client.sent) == 3


@pytest.mark.parametrize(
    "content", [RecordDict(), RecordDict({"header": ConfigRecord({"json": "["}), "payload": ConfigRecord()})]
)
def test_a_message_that_cannot_be_read_is_answered_with_a_code(
    ran: Ran, content: RecordDict, capsys: pytest.CaptureFixture[str]
) -> None:
    client = FakeClient([None, message(content, "query.ask", 1), hello()])
    ran(client)
    assert client.sent[0].header["code"] is not None
    assert client.sent[1].header == {"protocol": PROTOCOL, "name": "node-0"}
    assert "Traceback" not in capsys.readouterr().out


def test_a_real_node_without_a_server_makes_its_key_and_says_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node.toml").write_text(
        f'server = "127.0.0.1:{free_port()}"\nname = "node-0"\ndata-path = "data"\nstore = "store"\n'
    )
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise End

    monkeypatch.setattr(node_loop, "NodeLoop", partial(NodeLoop, pause=pause))
    with pytest.raises(End):
        serve(tmp_path)
    assert capsys.readouterr().out.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node.key", "node.key.pub", "node.toml"]
