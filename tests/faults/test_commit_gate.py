"""An outlier is left out of its phase; a round that fails or moves too far is repeated without its cause."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.altering import Altered
from tests.tiny import tiny_keys

from refprotofl.core.errors import ClientsFailed, GuardError, RunError
from refprotofl.core.state import State
from refprotofl.engines.engine import Request, Result
from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.federation.divergence import check_divergence
from refprotofl.federation.local_run import OpenEngine, open_engine
from refprotofl.methods.base.client import Client
from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.methods.base.training import Diverged
from refprotofl.methods.builtin.fedgh.fedgh import FedGHClient
from refprotofl.methods.builtin.refprotofl.client import RefProtoClient
from refprotofl.methods.builtin.refprotofl.server import RefProtoServer
from refprotofl.methods.builtin.thin.client import ThinClient
from refprotofl.records.folder import read_events
from refprotofl.wire import Message, Sparse

CULPRIT = 1
TINY = tiny_keys(clients=5, rounds=3, evaluate={"every": 3, "test-limit": 20})


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

        def answer(self: RefProtoClient, round: int, message: ValidatedMessage) -> Message:
            said: Message = honest(self, round, message)
            return enlarged(said, name, factor) if (self.context.client_id, round) == (CULPRIT, when) else said

        monkeypatch.setattr(RefProtoClient, verb, answer)

    return install


@pytest.mark.parametrize(
    ("verb", "name", "factor"),
    [
        ("prototypes", "public_prototypes", 1e4),
        ("prototypes", "public_prototypes", 1e30),
        ("train", "adapter", 1e4),
        ("train", "adapter", 1e30),
    ],
)
@pytest.mark.parametrize("when", [1, 2])
def test_an_outlier_is_left_out_of_the_phase_in_which_it_answers(
    attack: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    verb: str,
    name: str,
    factor: float,
    when: int,
) -> None:
    """The result is that of a run in which it did not answer from that phase on, and nothing is computed twice."""
    experiment = Experiment.parse(TINY)
    attack(verb, name, factor, when)
    attacked = run(experiment, out=tmp_path / "attacked")
    events = read_events(attacked.folder)
    assert not [event for event in events if event["event"] == "round-discarded"]
    (failed,) = [event for event in events if event["event"] == "client-failed"]
    assert (failed["round"], failed["client"], failed["code"]) == (when, CULPRIT, "outlier")
    assert failed["reason"].startswith(f"{verb}: its ")
    assert "times as large as the median" in failed["reason"]
    rounds = [event for event in events if event["event"] == "round"]
    assert [event["round"] for event in rounds] == [1, 2, 3]
    assert rounds[when - 1]["participants"] == [0, 2, 3, 4]

    monkeypatch.undo()
    absent = run(experiment, out=tmp_path / "absent", engine=silent(verb, when))
    assert attacked.summary["state_digest"] == absent.summary["state_digest"]
    assert attacked.summary["accuracy"] == absent.summary["accuracy"]


def silent(verb: str, when: int) -> OpenEngine:
    """An engine in which the culprit has no answer to a verb in one round."""

    def alter(request: Request, result: Result) -> Result:
        silenced = (request.client, request.verb, request.round) == (CULPRIT, verb, when)
        return Result(code="failed") if silenced else result

    return lambda site: Altered(open_engine(site), alter)


@pytest.mark.parametrize("method", ["refprotofl", "fedavg", "thin", "fedpac"])
def test_answers_that_do_not_fit_into_memory_give_the_same_result(
    method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    experiment = Experiment.parse({**TINY, "method": method, "rounds": 2})
    whole = run(experiment, out=tmp_path / "whole")
    monkeypatch.setattr("refprotofl.methods.base.screening.IN_MEMORY", 0)
    assert run(experiment, out=tmp_path / "spilled").summary["state_digest"] == whole.summary["state_digest"]


@pytest.mark.parametrize(
    ("method", "client", "name"),
    [({"method": "thin"}, ThinClient, "scales"), ({"method": "fedgh"}, FedGHClient, "prototypes")],
)
def test_the_servers_own_training_does_not_see_an_outlier(
    method: dict[str, Any], client: type[Client], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = client.train

    def answer(self: Client, round: int, message: ValidatedMessage) -> Message:
        said: Message = honest(self, round, message)
        return enlarged(said, name, 1e36) if (self.context.client_id, round) == (CULPRIT, 2) else said

    monkeypatch.setattr(client, "train", answer)
    events = read_events(run(Experiment.parse({**TINY, **method}), out=tmp_path / "run").folder)
    (failed,) = [event for event in events if event["event"] == "client-failed"]
    assert (failed["round"], failed["client"], failed["code"]) == (2, CULPRIT, "outlier")
    assert [event["round"] for event in events if event["event"] == "round"] == [1, 2, 3]


class Trouble:
    """A server whose round fails as long as the culprit is in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, problem: Exception, when: int = 2) -> None:
        honest = RefProtoServer.round

        def failing(server: RefProtoServer, cohort: Any) -> None:
            honest(server, cohort)
            if cohort.round == when and CULPRIT in cohort.clients:
                raise problem

        monkeypatch.setattr(RefProtoServer, "round", failing)


@pytest.mark.parametrize(
    "problem", [Diverged("training diverged"), GuardError("nothing moved"), ClientsFailed("no client is left")]
)
def test_a_round_that_fails_is_repeated_without_the_client_that_stands_out_most(
    attack: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: Exception
) -> None:
    """Its prototypes are 15 times the usual: within the limits, but suspicious where a round fails."""
    attack("prototypes", "public_prototypes", 15, 2)
    Trouble(monkeypatch, problem)
    events = read_events(run(Experiment.parse(TINY), out=tmp_path / "run").folder)
    (discarded,) = [event for event in events if event["event"] == "round-discarded"]
    (failed,) = [event for event in events if event["event"] == "client-failed"]
    assert str(problem) in discarded["reason"]
    assert (failed["round"], failed["client"], failed["code"]) == (2, CULPRIT, "outlier")


def test_a_round_that_fails_without_an_outlier_stops_the_run_with_its_own_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Trouble(monkeypatch, ClientsFailed("Round 2: no client is left"))
    with pytest.raises(ClientsFailed, match=r"^Round 2: no client is left$"):
        run(Experiment.parse(TINY), out=tmp_path / "run")


def test_a_run_that_fails_later_names_the_client_that_stood_out_before(
    attack: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also after a resume: what it sent is in the committed state."""
    attack("prototypes", "public_prototypes", 15, 1)
    Trouble(monkeypatch, ClientsFailed("Round 2: no client is left"))
    for resume in (False, True):
        with pytest.raises(ClientsFailed, match=r"In round 1 the answers of client 1 were 1\d(\.\d)? times as large"):
            run(Experiment.parse(TINY), out=tmp_path / "run", resume=resume)


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


def test_without_an_outlier_the_run_stops_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert check_divergence(before, after, {"shared": [1.0, 2.0, 3.0]}, {}, 21.0).reason == ""
    assert (
        check_divergence(before, after, {"shared": [1.0, 2.0, 3.0]}, {}, 19.0).reason
        == "shared moved 40, where 2 is usual"
    )
    assert check_divergence(before, after, {"shared": [0.0, 0.0, 1.0]}, {}, 19.0).reason == ""  # too little is known
    assert check_divergence(before, after, {"shared": [1.0] * 9}, {}, 30.0).moves == {"shared": [1.0] * 8 + [40.0]}


def test_an_outlier_is_found_by_the_median_of_the_others() -> None:
    norms = {("train", "shared"): {0: 1.0, 1: 2.0, 2: 3.0, 3: 700.0}}  # the median is 2.5
    state: State = {"shared": torch.zeros(1)}
    assert check_divergence(state, state, {}, norms, 200.0).clients == (3,)
    assert check_divergence(state, state, {}, norms, 300.0).clients == ()
    assert (
        check_divergence(state, state, {}, {("train", "shared"): {0: 1.0, 3: 700.0}}, 2.0).clients == ()
    )  # two are too few
