"""A round whose outcome is out of all proportion is not committed; who caused it is out of it, and nobody else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from refprotofl.basics.state import State
from refprotofl.errors import RunError
from refprotofl.experiment import Experiment
from refprotofl.methods.builtin.fedgh.fedgh import FedGHClient
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.methods.builtin.thin.client import ThinClient
from refprotofl.methods.core.client import Client
from refprotofl.methods.core.fields import Received
from refprotofl.records.folder import read_events
from refprotofl.simulation.draws import draw_cohort
from refprotofl.simulation.gate import judge
from refprotofl.simulation.run import run
from refprotofl.wire import Message, Sparse

CULPRIT = 1
TINY: dict[str, Any] = {
    **{"dataset": "digits", "train-limit": 150, "clients": 5, "rounds": 3, "min-size": 10},
    **{"public": {"per-class": 2}, "train": {"batch-size": 16}, "evaluate": {"every": 3, "test-limit": 20}},
    "model": {"name": "mlp", "norm": "none", "embedding": 8},
}


def enlarged(message: Message, name: str, factor: float) -> Message:
    value = message[name]
    if isinstance(value, Sparse):
        return {**message, name: Sparse(value.indices, value.values * factor, value.size)}
    assert isinstance(value, torch.Tensor)
    return {**message, name: value * factor}


@pytest.fixture
def attack(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, float, int], None]:
    def install(verb: str, name: str, factor: float, when: int) -> None:
        honest = getattr(RefProtoClient, verb)

        def answer(self: RefProtoClient, round: int, message: Received) -> Message:
            said: Message = honest(self, round, message)
            return enlarged(said, name, factor) if (self.seat.number, round) == (CULPRIT, when) else said

        monkeypatch.setattr(RefProtoClient, verb, answer)

    return install


@pytest.mark.parametrize(
    ("verb", "name", "factor"),
    [("prototypes", "public_prototypes", 1e4), ("train", "adapter", 1e4), ("train", "adapter", 1e30)],
)
@pytest.mark.parametrize("when", [1, 2])
def test_the_round_is_done_again_without_who_stands_out(
    attack: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    verb: str,
    name: str,
    factor: float,
    when: int,
) -> None:
    experiment = Experiment.parse(TINY)
    with monkeypatch.context():
        attack(verb, name, factor, when)
        attacked = run(experiment, out=tmp_path / "attacked")
    events = read_events(attacked.folder)
    (discarded,) = [event for event in events if event["event"] == "round-discarded"]
    (failed,) = [event for event in events if event["event"] == "client-failed"]
    assert (discarded["round"], failed["round"], failed["client"]) == (when, when, CULPRIT)
    rounds = [event for event in events if event["event"] == "round"]
    assert [event["round"] for event in rounds] == [1, 2, 3]
    assert rounds[when - 1]["participants"] == [0, 2, 3, 4]

    def without(asked: Experiment, round: int) -> list[int]:
        return [client for client in draw_cohort(asked, round) if (client, round) != (CULPRIT, when)]

    monkeypatch.undo()
    monkeypatch.setattr("refprotofl.simulation.loop.draw_cohort", without)
    absent = run(experiment, out=tmp_path / "absent")
    assert attacked.summary["state_digest"] == absent.summary["state_digest"]
    assert attacked.summary["accuracy"] == absent.summary["accuracy"]


@pytest.mark.parametrize(
    ("method", "client", "name"),
    [({"method": "thin"}, ThinClient, "scales"), ({"method": "fedgh"}, FedGHClient, "prototypes")],
)
def test_who_makes_the_servers_own_training_diverge_harms_itself_alone(
    method: dict[str, Any], client: type[Client], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = client.train

    def answer(self: Client, round: int, message: Received) -> Message:
        said: Message = honest(self, round, message)
        return enlarged(said, name, 1e36) if (self.seat.number, round) == (CULPRIT, 2) else said

    monkeypatch.setattr(client, "train", answer)
    events = read_events(run(Experiment.parse({**TINY, **method}), out=tmp_path / "run").folder)
    (discarded,) = [event for event in events if event["event"] == "round-discarded"]
    (failed,) = [event for event in events if event["event"] == "client-failed"]
    assert "at the server training diverged" in discarded["reason"]
    assert (discarded["round"], failed["round"], failed["client"]) == (2, 2, CULPRIT)
    assert [event["round"] for event in events if event["event"] == "round"] == [1, 2, 3]


def test_where_the_servers_own_training_diverges_by_itself_the_run_says_what_may_help(tmp_path: Path) -> None:
    experiment = Experiment.parse(
        {**TINY, "method": "thin", "train": {"batch-size": 16, "lr": 1e30}, "thin": {"pretrain": 1}}
    )
    with pytest.raises(
        RunError, match=r"Round 1 was not committed: at the server training diverged; a smaller train.lr"
    ):
        run(experiment, out=tmp_path / "run")


def test_with_max_step_0_only_what_is_not_finite_is_stopped(attack: Callable[..., None], tmp_path: Path) -> None:
    attack("prototypes", "public_prototypes", 1e3, 1)
    experiment = Experiment.parse({**TINY, "max-step": 0, "rounds": 1})
    assert not [
        event for event in read_events(run(experiment, out=tmp_path / "run").folder) if "discarded" in event["event"]
    ]


def test_where_nobody_stands_out_the_run_stops_and_can_be_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from refprotofl.methods.builtin.refprotofl.server import RefProtoServer

    experiment, honest = Experiment.parse(TINY), RefProtoServer.round

    def broken(self: RefProtoServer, cohort: Any) -> None:
        honest(self, cohort)
        if cohort.round == 2:
            self.adapter = self.adapter * float("inf")

    with monkeypatch.context() as patch:
        patch.setattr(RefProtoServer, "round", broken)
        with pytest.raises(RunError, match=r"Round 2 was not committed: adapter has numbers that are not finite"):
            run(experiment, out=tmp_path / "run")
    resumed = run(experiment, out=tmp_path / "run", resume=True)
    assert resumed.summary["state_digest"] == run(experiment, out=tmp_path / "whole").summary["state_digest"]


def test_what_is_usual_is_the_median_of_what_moved() -> None:
    before: State = {"shared": torch.ones(4)}
    after: State = {"shared": torch.full((4,), 21.0)}  # moved by 40, where its size was 2
    assert judge(before, after, {"shared": [1.0, 2.0, 3.0]}, {}, 21.0).reason == ""
    assert judge(before, after, {"shared": [1.0, 2.0, 3.0]}, {}, 19.0).reason == "shared moved 40, where 2 is usual"
    assert judge(before, after, {"shared": [0.0, 0.0, 1.0]}, {}, 19.0).reason == ""  # too little is known
    assert judge(before, after, {"shared": [1.0] * 9}, {}, 30.0).moves == {"shared": [1.0] * 8 + [40.0]}


def test_who_stands_out_is_told_by_the_median_of_the_others() -> None:
    norms = {("train", "shared"): {0: 1.0, 1: 2.0, 2: 3.0, 3: 700.0}}  # the median is 2.5
    state: State = {"shared": torch.zeros(1)}
    assert judge(state, state, {}, norms, 200.0).clients == (3,)
    assert judge(state, state, {}, norms, 300.0).clients == ()
    assert judge(state, state, {}, {("train", "shared"): {0: 1.0, 3: 700.0}}, 2.0).clients == ()  # two tell nothing
