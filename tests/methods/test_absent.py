"""A client that is refused is absent from that phase on: as if it had not answered, and nothing of its own is lost."""

from typing import Any

import pytest
import torch

from refprotofl.core.state import tensor_of
from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.wire import Message, encode

pytestmark = pytest.mark.slow

UNLUCKY = 2

EF = {"error_feedback": "ef", "normalise": "participants"}
EF21 = {"error_feedback": "ef21", "normalise": "participants"}


class Silent(RefProtoClient):
    """Fails where the other is refused."""

    def train(self, round: int, message: ValidatedMessage) -> Message:
        if (self.context.client_id, round) == (UNLUCKY, 2):
            raise RuntimeError("no answer")
        return super().train(round, message)


@pytest.mark.parametrize("switches", [{}, EF, EF21, {"downlink": "sparse"}, {"timing": "post-train"}], ids=str)
def test_a_refused_client_is_as_good_as_silent(simulate: Any, play: Any, garbling: Any, switches: Any) -> None:
    refused = simulate(engine=garbling(UNLUCKY, 2, "train", lambda _: encode({"adapter": 1})), **switches)
    (failure,) = refused.events("client-failed")
    assert (failure["client"], failure["round"]) == (UNLUCKY, 2)
    play(client=Silent)
    silent = simulate(**switches)
    assert refused.finished.summary["state_digest"] == silent.finished.summary["state_digest"]
    assert refused.events("round")[1]["clients"].keys() == {"0", "1", "3"}  # its state is the one of round 1


def test_what_a_refused_upload_held_is_sent_later(simulate: Any, garbling: Any) -> None:
    """The memory after round 2 is that of round 1, not the rest of an upload that was not taken."""
    once = simulate({"rounds": 1}, **EF)
    refused = simulate({"rounds": 2}, engine=garbling(UNLUCKY, 2, "train", lambda _: encode({"adapter": 1})), **EF)
    before, after = (tensor_of(run.client_state(UNLUCKY), "memory") for run in (once, refused))
    assert torch.equal(before, after)


def test_with_ef21_both_sides_still_know_the_same(simulate: Any, garbling: Any) -> None:
    refused = simulate(engine=garbling(UNLUCKY, 2, "train", lambda _: encode({"adapter": 1})), **EF21)
    known = tensor_of(refused.server_state(), "memory")
    for client in range(4):
        assert torch.equal(known[client], tensor_of(refused.client_state(client), "memory"))
    assert (
        len([one for one in refused.tap.select("down", "join") if one.client == UNLUCKY]) == 1
    )  # it need not join anew
