"""Clients that join late, or return without their state: they get what they lack again, and the run continues."""

from collections import Counter
from typing import Any

import pytest
import torch

from refprotofl.core.state import State, tensor_of
from refprotofl.engines.local.store import ClientStore, DiskBlobStore, Loaded, Location
from refprotofl.federation.local_run import OpenEngine
from refprotofl.federation.participation import draw_cohort
from refprotofl.methods.base.schema import Lost
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.wire import Message, Sparse
from refprotofl.wire.tensors import same_bits

UNLUCKY = 2
AFTER_ROUND_1 = "000002-1.safetensors"


def greetings(simulation: Any) -> list[tuple[int, int]]:
    """(round, client) of every public set that was shipped."""
    sent = simulation.tap.select("down", "join")
    assert all("images" in one.message for one in sent)
    return [(one.round, one.client) for one in sent]


@pytest.fixture
def forgetful(stored_by: Any) -> OpenEngine:
    """After round 1 the unlucky client's private state is gone."""

    class Forgetful(ClientStore):
        def base(self, client: int, location: Location) -> State:
            return super().base(client, Location() if location.file == AFTER_ROUND_1 else location)

    engine: OpenEngine = stored_by(Forgetful)
    return engine


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"timing": "post-train"},
        {"downlink": "sparse"},
        {"uplink_budget": "1 kB"},
        {"error_feedback": "ef", "normalise": "participants"},
        {"error_feedback": "ef21", "normalise": "participants"},
    ],
    ids=lambda switches: "-".join(map(str, switches.values())) or "default",
)
def test_a_client_that_lost_its_private_state_is_greeted_again_and_continues(
    simulate: Any, forgetful: OpenEngine, switches: dict[str, Any]
) -> None:
    went_on = simulate(engine=forgetful, **switches)
    assert went_on.events("client-failed") == []
    assert [event["participants"] for event in went_on.events("round")] == [[0, 1, 2, 3]] * 3
    assert greetings(went_on) == [(1, 0), (1, 1), (1, 2), (1, 3), (2, UNLUCKY)]
    one_off = [one for one in went_on.tap.crossings if one.phase == "join"]
    assert went_on.communication["one_off"] == {
        "messages": 10, "payload_bytes": sum(len(one.data) for one in one_off)
    }  # fmt: skip


def test_a_client_that_lost_its_state_is_sent_the_dense_adapter(simulate: Any, forgetful: OpenEngine) -> None:
    went_on = simulate(engine=forgetful, downlink="sparse")
    asked = [one for one in went_on.tap.select("down", "prototypes") if one.client == UNLUCKY and one.round > 1]
    assert [type(one.message["adapter"]) for one in asked] == [Sparse, torch.Tensor, Sparse]
    assert [one.round for one in asked] == [2, 2, 3]


@pytest.mark.parametrize("lost", ["everything", "the public set"])
def test_ef21s_memory_stays_the_same_on_both_sides(simulate: Any, stored_by: Any, lost: str) -> None:
    class Forgetful(ClientStore):
        def base(self, client: int, location: Location) -> State:
            if location.file != AFTER_ROUND_1:
                return super().base(client, location)
            if lost == "everything":
                return super().base(client, Location())
            return {name: value for name, value in super().base(client, location).items() if name != "public"}

    went_on = simulate(engine=stored_by(Forgetful), error_feedback="ef21", normalise="participants")
    assert greetings(went_on)[4:] == [(2, UNLUCKY)]
    server = went_on.server_state()["memory"]
    for client in went_on.checkpoint().records:
        assert same_bits(server[client], tensor_of(went_on.client_state(client), "memory")), f"client {client}"


def test_a_public_set_that_vanished_from_the_blob_store_is_shipped_again(simulate: Any, stored_by: Any) -> None:
    shelves: list[DiskBlobStore] = []

    class Watched(DiskBlobStore):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            shelves.append(self)

    class Tidy(ClientStore):
        def save(self, client: int, round: int, state: State, loaded: Loaded, location: Location) -> Location:
            if round == 1 and client == 3 and "trained" in state:
                (blobs,) = shelves
                (file,) = blobs.folder.iterdir()
                file.unlink()
                blobs._messages.clear()
            return super().save(client, round, state, loaded, location)

    went_on = simulate(engine=stored_by(Tidy, Watched))
    # The clients of this process share a blob store: the first that misses the set brings it back for all.
    assert greetings(went_on) == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
    assert went_on.events("client-failed") == []
    assert len(list((went_on.folder / "checkpoint" / "blobs").iterdir())) == 1


def test_a_damaged_file_in_the_blob_store_counts_as_lost(tmp_path: Any) -> None:
    (tmp_path / "blobs").mkdir()
    message: Message = {"images": torch.ones(2, 3)}
    digest = DiskBlobStore(tmp_path).put(message)
    kept = DiskBlobStore(tmp_path).get(digest)
    assert kept is not None
    assert torch.equal(kept["images"], message["images"])  # type: ignore[arg-type]
    file = tmp_path / "blobs" / digest
    file.write_bytes(file.read_bytes()[:-1])
    assert DiskBlobStore(tmp_path).get(digest) is None
    file.unlink()
    assert DiskBlobStore(tmp_path).get(digest) is None


def test_a_client_that_loses_its_state_between_the_two_phases_is_greeted_and_trains(
    simulate: Any, stored_by: Any
) -> None:
    class Forgetful(ClientStore):
        lost = False

        def save(self, client: int, round: int, state: State, loaded: Loaded, location: Location) -> Location:
            sent_prototypes = state.get("adapter_round") == 1 and "trained" not in state
            if client == UNLUCKY and sent_prototypes and not self.lost:
                self.lost = True
                return Location()
            return super().save(client, round, state, loaded, location)

    went_on = simulate({"rounds": 2}, engine=stored_by(Forgetful))
    assert went_on.events("client-failed") == []
    assert greetings(went_on)[4:] == [(1, UNLUCKY)]
    trained = [one for one in went_on.tap.select("down", "train") if (one.round, one.client) == (1, UNLUCKY)]
    assert [sorted(one.message) for one in trained] == [["anchors"], ["adapter", "anchors"]]
    assert [event["participants"] for event in went_on.events("round")] == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize("verb", ["join", "prototypes", "train"])
def test_a_client_that_lost_its_state_and_then_fails_is_dropped_once_with_the_reason(
    simulate: Any, forgetful: OpenEngine, play: Any, verb: str
) -> None:
    class Broken(RefProtoClient):
        def answer(self, asked: str, round: int, message: Message) -> Message:
            # In round 2 the adapter's store is empty, until it was greeted again.
            again = asked != "join" and "public" in self.state
            if self.context.client_id == UNLUCKY and round == 2 and asked == verb and (again or asked == "join"):
                raise RuntimeError("out of memory")
            return super().answer(asked, round, message)

    play(client=Broken)
    went_on = simulate(engine=forgetful)
    (failure,) = went_on.events("client-failed")
    assert (failure["round"], failure["client"]) == (2, UNLUCKY)
    assert failure["reason"] == f"{verb}: its code failed"
    assert f"{verb}: out of memory" in went_on.log(UNLUCKY)
    assert [event["participants"] for event in went_on.events("round")] == [[0, 1, 2, 3], [0, 1, 3], [0, 1, 2, 3]]


def test_a_client_that_always_lost_its_state_is_dropped_not_asked_forever(simulate: Any, play: Any) -> None:
    class Amnesiac(RefProtoClient):
        def public_set(self) -> Any:
            if self.context.client_id == UNLUCKY:
                raise Lost
            return super().public_set()

    play(client=Amnesiac)
    went_on = simulate({"rounds": 2})
    assert [event["reason"] for event in went_on.events("client-failed")] == [
        "prototypes: its store is lost and did not come back"
    ] * 2
    assert [event["participants"] for event in went_on.events("round")] == [[0, 1, 3]] * 2


def test_late_joiners_get_the_public_set_when_they_first_take_part_and_only_then(simulated: Any) -> None:
    partial = simulated({"fraction": 0.5, "rounds": 6})
    first: dict[int, int] = {}
    for number in range(1, 7):
        for client in draw_cohort(partial.experiment, number):
            first.setdefault(client, number)
    assert len(set(first.values())) > 1  # some do come late
    assert greetings(partial) == sorted((number, client) for client, number in first.items())
    assert set(Counter(client for _, client in greetings(partial)).values()) == {1}
    assert partial.communication["one_off"]["messages"] == 2 * len(first)
