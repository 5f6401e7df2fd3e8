"""Numbers that a client reports of itself are accepted once, within bounds, and if the server cannot compute them."""

from typing import Any

import pytest
import torch

from refprotofl.methods import find_method
from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.wire import Message

CULPRIT = 1


def test_no_client_has_more_samples_than_the_largest(simulate: Any, play: Any, simulated: Any) -> None:
    class Boaster(RefProtoClient):
        def join(self, round: int, message: ValidatedMessage) -> Message:
            answer = super().join(round, message)
            return {"samples": 2**62} if self.context.client_id == CULPRIT else answer

    play(client=Boaster)
    boasted = simulate({"rounds": 1})
    (failure,) = boasted.events("client-failed")
    assert failure["reason"].startswith(f"join: samples = {2**62} is more than any client has, max-samples = ")
    assert boasted.events("round")[0]["participants"] == [0, 2, 3]


def test_max_samples_is_the_users_to_set(simulate: Any, tiny: Any) -> None:
    limited = simulate({"rounds": 1, "max-samples": 30})
    samples = {one.client: one.message.whole("samples") for one in limited.tap.select("up", "join")}
    refused = {event["client"] for event in limited.events("client-failed")}
    assert refused == {client for client, count in samples.items() if count > 30} != set()
    assert tiny({"max-samples": 30}).hash == tiny().hash  # not part of the experiment


def test_a_client_that_joins_again_has_as_many_samples_as_before(simulate: Any, play: Any) -> None:
    class Changing(RefProtoClient):
        def answer(self, verb: str, round: int, message: Message) -> Message:
            answer = super().answer(verb, round, message)
            if (self.context.client_id, round) != (CULPRIT, 2):
                return answer
            if verb == "join":
                return {"samples": ValidatedMessage(answer).whole("samples") - 1}
            return {"lost": True}

    play(client=Changing)
    changed = simulate()
    (failure,) = changed.events("client-failed")
    assert "but it joined with" in failure["reason"]
    before = changed.tap.select("up", "join")[CULPRIT].message.whole("samples")
    assert int(changed.server_state()["samples"][CULPRIT]) == before


@pytest.mark.parametrize("progress", [1e-300, 1e300, 1.0])
def test_fednovas_progress_follows_from_the_samples(simulate: Any, monkeypatch: Any, progress: float) -> None:
    usual = find_method("fednova")

    class Lying(usual.client):  # type: ignore[misc, name-defined]
        def train(self, round: int, message: ValidatedMessage) -> Message:
            answer: Message = super().train(round, message)
            return {**answer, "progress": progress} if self.context.client_id == CULPRIT else answer

    monkeypatch.setattr(type(usual), "client", Lying)
    lied = simulate({"method": "fednova", "rounds": 1})
    (failure,) = lied.events("client-failed")
    assert failure["client"] == CULPRIT
    assert "is not that of" in failure["reason"]
    assert torch.isfinite(lied.server_state()["shared"]).all()


@pytest.mark.parametrize(
    ("verb", "name", "value", "reason"),
    [
        ("join", "counts", torch.full((10,), 2**31 - 1, dtype=torch.int32), "the counts do not add up to the samples"),
        ("seed", "embeddings", None, "wide, not"),
    ],
)
def test_fast_believes_neither_counts_nor_widths(
    simulate: Any, monkeypatch: Any, verb: str, name: str, value: Any, reason: str
) -> None:
    usual = find_method("fast")

    class Lying(usual.client):  # type: ignore[misc, name-defined]
        def answer(self, asked: str, round: int, message: Message) -> Message:
            answer: Message = super().answer(asked, round, message)
            if (self.context.client_id, asked) != (0, verb) or name not in answer:
                return answer
            rows = answer[name]
            assert isinstance(rows, torch.Tensor)
            return {**answer, name: value if value is not None else torch.zeros(len(rows), 2 * rows.shape[1])}

    monkeypatch.setattr(type(usual), "client", Lying)
    settings = {"method": "fast", "rounds": 1, "fast": {"seed-share": 0.3}}
    lied = simulate(settings)
    (failure,) = lied.events("client-failed")
    assert (failure["client"], reason in failure["reason"]) == (0, True), failure
    assert lied.events("round")[0]["participants"] == [1, 2, 3]
    if verb == "seed":
        assert not lied.server_state()["quotas"][0].any()  # others could make its labels
