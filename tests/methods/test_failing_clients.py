"""Clients that fail, lie or babble: dropped from the round, recorded with the reason; the others continue."""

import importlib
import struct
from collections.abc import Callable
from typing import Any

import pytest
import torch

from refprotofl.core.errors import RunError
from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.wire import Message, Sparse, encode
from refprotofl.wire.tensors import same_bits

pytestmark = pytest.mark.slow

CULPRIT, ROUND = 1, 2
Spoil = Callable[[Message], Message]


def spoiling(verb: str, spoil: Spoil) -> type[RefProtoClient]:
    """A client that does all right except in one answer."""

    class Spoiled(RefProtoClient):
        def answer(self, asked: str, round: int, message: Message) -> Message:
            answer = super().answer(asked, round, message)
            return spoil(answer) if (self.context.client_id, round, asked) == (CULPRIT, ROUND, verb) else answer

    return Spoiled


def raises(_: Message) -> Message:
    raise RuntimeError("the battery is empty")


def says_nothing(_: Message) -> Message:
    raise RuntimeError


def with_values(name: str, change: Callable[[Any], Any]) -> Spoil:
    return lambda answer: {**answer, name: change(answer[name])}


def one_fewer(update: Sparse) -> Sparse:
    return Sparse(update.indices[:-1], update.values[:-1], update.size)


def poisoned(values: torch.Tensor) -> torch.Tensor:
    return values.clone().index_fill(0, torch.tensor([0]), float("nan"))


@pytest.mark.parametrize(
    ("verb", "spoil", "reason"),
    [
        ("prototypes", raises, "prototypes: the battery is empty"),
        ("prototypes", says_nothing, "prototypes: RuntimeError"),
        ("prototypes", lambda _: {}, "prototypes: the field 'public_prototypes' is missing"),
        (
            "prototypes",
            with_values("public_prototypes", lambda rows: rows[:-1]),
            "prototypes: public_prototypes is not a float32 matrix of 10 x 8",
        ),
        ("prototypes", with_values("public_prototypes", poisoned), "8 of 80 values are NaN or infinite"),
        ("train", raises, "train: the battery is empty"),
        ("train", lambda _: {}, "train: the field 'adapter' is missing"),
        (
            "train",
            with_values("adapter", one_fewer),
            "train: 111 coordinates were sent, not the announced 112",
        ),
        (
            "train",
            with_values("adapter", lambda update: Sparse(update.indices, update.values, update.size + 1)),
            "train: adapter is not a sparse vector of size 1122",
        ),
        (
            "train",
            with_values("adapter", lambda update: Sparse(update.indices, update.values.double(), update.size)),
            "train: adapter is torch.float64, not torch.float32",
        ),
        ("train", lambda answer: {**answer, "adapter": torch.zeros(1122)}, "train: adapter is not a sparse vector"),
        (
            "train",
            with_values("adapter", lambda update: Sparse(update.indices, poisoned(update.values), update.size)),
            "1 of 112 values are NaN or infinite",
        ),
        ("train", lambda answer: {**answer, "note": object()}, "a object cannot be sent"),
        ("prototypes", lambda answer: {**answer, "note": 1}, "prototypes: the field 'note' was not asked for"),
        ("train", lambda answer: {**answer, "note": "hello"}, "train: the field 'note' was not asked for"),
    ],
)
def test_a_failing_client_is_out_of_its_round_and_back_in_the_next(
    simulate: Any, play: Any, verb: str, spoil: Spoil, reason: str
) -> None:
    play(client=spoiling(verb, spoil))
    went_on = simulate()
    (failure,) = went_on.events("client-failed")
    assert (failure["round"], failure["client"]) == (ROUND, CULPRIT)
    assert reason in failure["reason"] + went_on.log(CULPRIT)  # what happened at the client is recorded only there
    assert [event["participants"] for event in went_on.events("round")] == [[0, 1, 2, 3], [0, 2, 3], [0, 1, 2, 3]]
    assert went_on.events("round")[1]["asked"] == [0, 1, 2, 3]
    asked_to_train = [one.client for one in went_on.tap.select("down", "train") if one.round == ROUND]
    assert asked_to_train == ([0, 2, 3] if verb == "prototypes" else [0, 1, 2, 3])
    assert went_on.finished.summary["full_model"]["participations"] == 11


def of_many_classes(answer: Message) -> Message:
    """By its fields a proper answer."""
    classes = torch.arange(10, dtype=torch.uint8).repeat(4)
    return {**answer, "local_prototypes": torch.rand(40, 8), "classes": classes, "counts": torch.ones(40).int()}


def of_everything(_: Message) -> Message:
    return {"adapter": Sparse(torch.arange(1122), torch.rand(1122), 1122)}


@pytest.mark.parametrize(("verb", "spoil"), [("prototypes", of_many_classes), ("train", of_everything)])
def test_a_client_that_sends_more_than_the_budget_allows_is_dropped(
    simulate: Any, play: Any, verb: str, spoil: Spoil
) -> None:
    play(client=spoiling(verb, spoil))
    went_on = simulate(uplink_budget="1 kB")
    (failure,) = went_on.events("client-failed")
    assert (failure["round"], failure["client"]) == (ROUND, CULPRIT)
    sent = went_on.up(CULPRIT, ROUND)
    assert sent > 1000
    assert failure["reason"] == f"{verb}: {sent} bytes were sent in this round, more than uplink-budget = 1000"


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (0, "samples = 0 is below 1"),
        (-3, "samples = -3 is below 1"),
        (True, "samples = True is not a whole number"),
        (2.0, "samples = 2.0 is not a whole number"),
    ],
)
def test_a_client_that_joins_with_nonsense_is_dropped_and_greeted_again(
    simulate: Any, play: Any, samples: object, reason: str
) -> None:
    class Boaster(RefProtoClient):
        def join(self, round: int, message: ValidatedMessage) -> Message:
            answer = super().join(round, message)
            return {"samples": samples} if (self.context.client_id, round) == (CULPRIT, 1) else answer  # type: ignore[dict-item]

    play(client=Boaster)
    went_on = simulate({"rounds": 2})
    (failure,) = went_on.events("client-failed")
    assert failure["reason"].startswith(f"join: {reason}")
    assert [event["participants"] for event in went_on.events("round")] == [[0, 2, 3], [0, 1, 2, 3]]


def nan_bytes(payload: bytes) -> bytes:
    """The last value of the update, which ends the message, is no number."""
    return payload[:-4] + struct.pack("<f", float("nan"))


@pytest.mark.parametrize(
    ("garble", "reason"),
    [
        (lambda _: b"", "truncated"),
        (lambda _: b"hello", "these bytes are not a message"),
        (lambda payload: payload[:-1], "truncated"),
        (lambda payload: payload + b"\0", "1 bytes after the end of the message"),
        (nan_bytes, "NaN or infinite"),
        (lambda _: encode({}), "the field 'adapter' is missing"),
        (lambda _: encode({"other": 1}), "the field 'other' was not asked for"),
    ],
)
def test_bytes_that_are_no_proper_answer_cost_only_their_sender(
    simulate: Any, garbling: Any, garble: Callable[[bytes], bytes], reason: str
) -> None:
    went_on = simulate({"rounds": 2}, engine=garbling(CULPRIT, ROUND, "train", garble))
    (failure,) = went_on.events("client-failed")
    assert (failure["round"], failure["client"]) == (ROUND, CULPRIT)
    assert failure["reason"].startswith("train: ")
    assert reason in failure["reason"]
    assert went_on.events("round")[1]["participants"] == [0, 2, 3]


def test_a_client_that_always_fails_leaves_the_result_of_a_federation_without_it(
    simulate: Any, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Absent(RefProtoClient):
        def prototypes(self, round: int, message: ValidatedMessage) -> Message:
            if self.context.client_id == CULPRIT:
                raise RuntimeError("gone")
            return super().prototypes(round, message)

    play(client=Absent)
    failing = simulate()
    play()
    loop = importlib.import_module("refprotofl.federation.loop")
    monkeypatch.setattr(loop, "draw_cohort", lambda *_: [0, 2, 3])
    without = simulate()
    assert len(failing.events("client-failed")) == 3
    assert without.events("client-failed") == []
    assert same_bits(failing.adapter(), without.adapter())
    assert same_bits(failing.server_state()["anchors"], without.server_state()["anchors"])
    assert failing.communication["uplink"] == without.communication["uplink"]


def test_a_client_that_fails_to_train_still_counted_in_the_anchors(simulate: Any, simulated: Any, play: Any) -> None:
    """Its prototypes came in time: the others train towards the same anchors as if it had not failed."""
    whole = simulated({"rounds": 2})
    play(client=spoiling("train", raises))
    went_on = simulate({"rounds": 2})
    anchors = [
        {one.client: one.data for one in run.tap.select("down", "train") if one.round == ROUND}
        for run in (went_on, whole)
    ]
    assert anchors[0] == anchors[1]
    assert not same_bits(went_on.adapter(), whole.adapter())


def test_a_client_that_fails_to_evaluate_is_missing_from_the_mean_and_nothing_else(simulate: Any, play: Any) -> None:
    class Shy(RefProtoClient):
        def evaluate(self, round: int, message: ValidatedMessage) -> Message:
            if self.context.client_id == CULPRIT:
                raise RuntimeError("no test data")
            return super().evaluate(round, message)

    play(client=Shy)
    went_on = simulate({"rounds": 1})
    (failure,) = went_on.events("client-failed")
    assert (failure["reason"], "no test data" in went_on.log(CULPRIT)) == ("evaluate: its code failed", True)
    assert went_on.finished.summary["evaluated_clients"] == [0, 2, 3]
    assert went_on.finished.summary["accuracy_per_client"]["personal"][CULPRIT] is None
    assert went_on.events("round")[0]["participants"] == [0, 1, 2, 3]


@pytest.mark.parametrize("verb", ["join", "prototypes", "train"])
def test_when_all_fail_the_run_ends_with_the_reason(simulate: Any, play: Any, verb: str) -> None:
    class Mutiny(RefProtoClient):
        def answer(self, asked: str, round: int, message: Message) -> Message:
            if asked == verb:
                raise RuntimeError(f"client {self.context.client_id} refuses")
            return super().answer(asked, round, message)

    play(client=Mutiny)
    with pytest.raises(RunError, match=rf"Round 1: no client is left \(client 0: {verb}: client 0 refuses; client 1"):
        simulate()
    assert simulate.last.events("round") == []


def test_training_that_diverges_everywhere_is_reported_with_advice(simulate: Any) -> None:
    with pytest.raises(
        RunError, match=r"no client is left .*training diverged; a smaller train.lr than 1e\+30 may help"
    ):
        simulate({"train": {"lr": 1e30}})
