"""A client's own scores are read like any other answer."""

from typing import Any

import pytest

from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.wire import Message


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ({}, "the field 'tested' is missing"),
        ({"tested": "x", "own_tested": 5}, "tested = 'x' is not a whole number"),
        ({"tested": 20, "own_tested": 5, "personal": 21}, "personal = 21 is more than tested = 20"),
        ({"tested": 20, "own_tested": 5, "personal": 3, "own": 6}, "own = 6 is more than own_tested = 5"),
        ({"tested": 20, "own_tested": 5, "personal": -3}, "personal = -3 is below 0"),
        ({"tested": 20, "own_tested": 5, "personal": 2**62}, "personal = 4611686018427387904 is above"),
        ({"tested": 20, "own_tested": 5, "global": 20}, "the field 'global' was not asked for"),
    ],
)
def test_scores_that_cannot_be_cost_their_sender_its_place_in_the_mean(
    simulate: Any, play: Any, scores: Message, reason: str
) -> None:
    class Odd(RefProtoClient):
        def evaluate(self, round: int, message: ValidatedMessage) -> Message:
            return scores if self.context.client_id == 1 else super().evaluate(round, message)

    play(client=Odd)
    done = simulate({"rounds": 1, "evaluate": {"every": 1}})
    (failure,) = done.events("client-failed")
    assert failure["client"] == 1
    assert failure["reason"].startswith(f"evaluate: {reason}")
    summary = done.finished.summary
    assert summary["accuracy_per_client"]["personal"][1] is None
    assert summary["evaluated_clients"] == [0, 2, 3]
    assert 0 <= summary["accuracy"]["personal"] <= 1
    assert summary["accuracy"]["global"] is None


def test_answers_can_be_gone_through_once(simulate: Any, play: Any) -> None:
    from refprotofl.core.errors import RunError
    from refprotofl.methods.builtin.refprotofl.server import RefProtoServer

    class Twice(RefProtoServer):
        def round(self, cohort: Any) -> None:
            answers = self.ask(cohort, "join", {}, lambda _, answer: answer)
            assert len(list(answers)) == 4
            list(answers)

    play(server=Twice)
    with pytest.raises(RunError, match=r"answers to 'join' were iterated over before.*list\(self.ask"):
        simulate({"rounds": 1})
