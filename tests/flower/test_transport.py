"""Messages by the hundred: in parts, several at a time, each reply under what it replies to."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from flwr.app import Message
from flwr.common.constant import ErrorCode
from tests.deployments import Configs, deployed, simulated
from tests.flower.inmemory import GONE, MemoryGrid

from refprotofl.core.errors import MachineError
from refprotofl.deploy import engine
from refprotofl.deploy.transport import Envelope, Sending
from refprotofl.engines.flower import grid_transport
from refprotofl.engines.flower import records as content
from refprotofl.engines.flower.grid_transport import FlowerTransport
from refprotofl.engines.flower.records import unwrap, wrap
from refprotofl.records.verify import first_difference


class Echo(MemoryGrid):
    """Answers with the number of its node; `takes` says how many of a push it takes."""

    together = 1  # pulls that must be under way at a time before one of them is answered

    def __post_init__(self) -> None:
        super().__post_init__()
        self.gate = threading.Barrier(self.together)

    def takes(self, messages: list[Message]) -> int:
        return len(messages)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        some = list(messages)
        return list(super().push_messages(some))[: self.takes(some)]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self.gate.wait(timeout=30)
        return super().pull_messages(message_ids)

    def _deliver(self, message: Message) -> str:
        number = message.metadata.dst_node_id
        identity = f"to-{number}"
        message.metadata.__dict__["_message_id"] = identity
        self.replies[identity] = Message(wrap(Envelope({"node": number})), reply_to=message)
        return identity


def sendings(count: int) -> list[Sending]:
    return [Sending(number, "ask", Envelope({}, b"the same for all")) for number in range(1, count + 1)]


@pytest.mark.parametrize(
    "count", [0, 1, grid_transport.AT_ONCE, grid_transport.AT_ONCE + 1, 7 * grid_transport.AT_ONCE - 3]
)
def test_every_message_is_pushed_once_and_its_reply_found(count: int) -> None:
    carrying = FlowerTransport(Echo({}))
    ids = carrying.push(sendings(count))
    assert ids == [f"to-{number}" for number in range(1, count + 1)]
    replies = carrying.pull(ids)
    assert {identity: reply.envelope and reply.envelope.header["node"] for identity, reply in replies.items()} == {
        f"to-{number}": number for number in range(1, count + 1)
    }
    assert carrying.pull(ids) == {}


def test_parts_are_pulled_at_the_same_time() -> None:
    """Each waits until three are under way: one after the other they would wait for ever."""

    class Together(Echo):
        together = 3

    carrying = FlowerTransport(Together({}))
    assert len(carrying.pull(carrying.push(sendings(3 * grid_transport.AT_ONCE)))) == 3 * grid_transport.AT_ONCE


def test_a_part_that_was_not_taken_whole_costs_no_other_part() -> None:
    class Refuses(Echo):
        def takes(self, messages: list[Message]) -> int:
            return len(messages) - any(one.metadata.dst_node_id == grid_transport.AT_ONCE + 1 for one in messages)

    ids = FlowerTransport(Refuses({})).push(sendings(3 * grid_transport.AT_ONCE))
    assert ids.count("") == grid_transport.AT_ONCE
    assert ids[grid_transport.AT_ONCE : 2 * grid_transport.AT_ONCE] == [""] * grid_transport.AT_ONCE


@pytest.mark.parametrize("size", [10, content.PART + 1])
def test_a_payload_that_goes_to_many_is_in_memory_once(size: int) -> None:
    class Keeps(Echo):
        kept: ClassVar[list[Message]] = []

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            some = list(messages)
            self.kept.extend(some)
            return super().push_messages(some)

    payload = bytes(size)
    FlowerTransport(Keeps({})).push([Sending(number, "ask", Envelope({}, payload)) for number in range(1, 100)])
    assert len(Keeps.kept) == 99
    assert len({id(message.content[f"{content.PAYLOAD}-0"]) for message in Keeps.kept}) == 1
    assert {unwrap(message.content).payload for message in Keeps.kept} == {payload}


@pytest.mark.parametrize(("many", "calls"), [(1, 1), (grid_transport.AT_ONCE, 1), (1000, 63)])
def test_the_more_answers_are_looked_for_the_longer_is_the_rest(many: int, calls: int) -> None:
    """A thousand answers would otherwise be looked for all the time, by requests that keep the nodes' own waiting."""
    rests: list[float] = []
    carrying = FlowerTransport(Echo({}), rests.append)
    ids = carrying.push(sendings(many))
    carrying.rest()
    carrying.pull(ids)
    carrying.rest()
    carrying.rest(most=0.01)
    assert rests == pytest.approx([grid_transport.SHORTEST, calls * grid_transport.QUIET, 0.01])


def test_codes_are_those_of_flower() -> None:
    """An app that cannot be loaded, raises or is none will do so again; one whose process died may not."""
    load, raised, fab = "LOAD_CLIENT_APP_EXCEPTION", "CLIENT_APP_RAISED_EXCEPTION", "INVALID_FAB"
    assert {getattr(ErrorCode, name) for name in (load, raised, fab)} == set(grid_transport.FINAL)
    assert GONE == ErrorCode.NODE_UNAVAILABLE
    others = {"UNKNOWN", "MESSAGE_UNAVAILABLE", "REPLY_MESSAGE_UNAVAILABLE", "MOD_FAILED_PRECONDITION"}
    known = {load, raised, fab, "CLIENT_APP_CRASHED", "NODE_UNAVAILABLE", *others}
    assert {name for name in vars(ErrorCode) if name.isupper()} == known  # a new one wants to be thought of


@pytest.mark.parametrize("call", ["get_nodes", "push_messages", "pull_messages"])
def test_a_superlink_that_does_not_answer_is_reported_in_a_sentence(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*given: object) -> None:
        raise httpx.HTTPStatusError("500", request=httpx.Request("GET", "http://x"), response=httpx.Response(500))

    monkeypatch.setattr(grid, call, refuse)
    with pytest.raises(MachineError, match=r"SuperLink (refused a request|takes no messages).*same --out"):
        deployed(grid, settings(), tmp_path / "there")


def test_answers_that_are_fetched_one_by_one_make_the_same_run(
    grid: MemoryGrid, settings: Configs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "AHEAD", 1)
    there, here = deployed(grid, settings(), tmp_path / "there"), simulated(settings(), tmp_path / "here")
    assert first_difference(here.folder, there.folder) is None
