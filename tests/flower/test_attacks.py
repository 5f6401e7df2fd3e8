"""One hostile node with an admitted key, on a real server: whatever it answers, the run continues for the others."""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest
from tests.flower.site import wait_for
from tests.flower.test_doors import fleet, once, running

from refprotofl.deploy.site import Site
from refprotofl.deploy.transport import Envelope
from refprotofl.engines.flower.control import FlowerOperator
from refprotofl.engines.flower.fleet_client import FleetClient
from refprotofl.engines.flower.records import wrap

PATIENCE = 120.0  # seconds; more than a run needs that does not wait


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("attacks") / "site", nodes=3) as made:
        yield made


@pytest.fixture
def hostile(site: Site) -> Iterator[FleetClient]:
    yield from online(site, 0)


def online(site: Site, number: int) -> Iterator[FleetClient]:
    node = fleet(site, number)
    node.activate()
    yield node
    node.close()


@pytest.fixture
def run(site: Site, exported: Path, tmp_path: Path) -> Iterator[int]:
    """A run of three clients that waits for all of them."""
    sets = " ".join(f"{name}.dataset={exported / name}.npz" for name in ("public", "test"))
    operator = FlowerOperator(site)
    number = operator.start(
        {"preset": "quick", "set": f"clients=3 rounds=1 deadline=300 {sets}", "out": str(tmp_path / "out")}
    )
    yield number
    if not operator.run(number).finished:
        operator.stop(number)
    wait_for(lambda: operator.run(number).finished, PATIENCE, lambda: str(operator.run(number)))


def message_for(node: FleetClient) -> Message:
    """The next message of the server to a node."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = node.pull(once)
        if found is not None:
            return found
        time.sleep(0.1)
    raise TimeoutError("the server sent nothing")


def announce(node: FleetClient, asked: Message, identity: str, children: list[str]) -> PushMessagesResponse:
    """Announces an answer whose objects the sender has made up."""
    answer = Message(wrap(Envelope({})), reply_to=asked)
    answer.metadata.__dict__["_message_id"] = identity
    tree = ObjectTree(object_id=identity, children=[ObjectTree(object_id=child) for child in children])
    proto = message_to_proto(remove_content_from_message(answer))
    return node._client.PushMessages(
        PushMessagesRequest(node=node._node, messages_list=[proto], message_object_trees=[tree])
    )


def assert_others_are_served(site: Site, run: int) -> None:
    """Another node that comes online hears of the run."""
    for honest in online(site, 1):
        assert message_for(honest).metadata.message_type == "query.hello"
    assert FlowerOperator(site).run(run).status == "running"


@pytest.mark.parametrize(
    "content", [b"ConfigRecord  0\0", b"Message  0\0", b"Message  4\0\xff\xff\xff\xff", b"Array  2\0{}"]
)
def test_an_answer_that_is_no_message_harms_its_sender_alone(
    site: Site, hostile: FleetClient, run: int, content: bytes
) -> None:
    asked = message_for(hostile)
    identity = hashlib.sha256(content).hexdigest()
    announced = announce(hostile, asked, identity, [])
    pushed = PushObjectRequest(
        node=hostile._node,
        run_id=asked.metadata.run_id,
        session_id=announced.session_id,
        object_id=identity,
        object_content=content,
    )
    assert hostile._client.PushObject(pushed).stored
    assert_others_are_served(site, run)


def test_an_answer_whose_parts_never_come_is_not_waited_for(site: Site, hostile: FleetClient, run: int) -> None:
    asked = message_for(hostile)
    announced = announce(hostile, asked, "a" * 64, [f"{number:064x}" for number in range(5)])
    assert len(announced.objects_to_push) == 6
    assert_others_are_served(site, run)


def test_an_answer_of_too_many_parts_is_refused(site: Site, hostile: FleetClient, run: int) -> None:
    asked = message_for(hostile)
    with pytest.raises(httpx.HTTPStatusError) as refused:
        announce(hostile, asked, "b" * 64, [f"{number:064x}" for number in range(500)])
    assert refused.value.response.status_code == 413
    assert_others_are_served(site, run)
