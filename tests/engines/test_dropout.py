"""Clients that are lost at random: the same ones every time, on record, absent from that phase on, and never all."""

from pathlib import Path
from typing import Any

import pytest
from tests.tiny import tiny_keys

from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, run
from refprotofl.federation.local_run import OpenEngine
from refprotofl.federation.participation import draw_lost
from refprotofl.federation.resolution import prepare
from refprotofl.methods import METHODS
from refprotofl.records.folder import read_events

TINY = tiny_keys(clients=5, rounds=3, evaluate={"every": 3, "test-limit": 20})


def tiny(**changed: Any) -> Experiment:
    return Experiment.parse({**TINY, "dropout": 0.3, **changed})


def lost_of(finished: RunResult) -> list[tuple[int, int]]:
    events = [event for event in read_events(finished.folder) if event["event"] == "client-failed"]
    assert {event["reason"] for event in events} == {"lost (dropout)"}
    return [(event["round"], event["client"]) for event in events]


def test_each_client_is_lost_by_a_draw_of_its_own() -> None:
    experiment = Experiment(dropout=0.3, clients=1000)
    lost = draw_lost(experiment, 4, "train", range(1000))
    assert 250 < len(lost) < 350
    assert set(draw_lost(experiment, 4, "train", range(500))) == {one for one in lost if one < 500}
    for other in (draw_lost(experiment, 5, "train", range(1000)), draw_lost(experiment, 4, "join", range(1000))):
        assert other != lost
    assert set(lost) < set(draw_lost(Experiment(dropout=0.6, clients=1000), 4, "train", range(1000)))


def test_a_round_is_never_emptied() -> None:
    experiment = Experiment(dropout=0.999, clients=4)
    for round in range(1, 30):
        lost = draw_lost(experiment, round, "train", range(4))
        assert len(lost) == 3
        (kept,) = set(range(4)) - set(lost)
        assert draw_lost(experiment, round, "train", [kept]) == []


def test_the_same_clients_are_lost_in_every_engine(tmp_path: Path, patient: OpenEngine) -> None:
    alone, spread = run(tiny(), out=tmp_path / "1"), run(tiny(), out=tmp_path / "2", workers=2, engine=patient)
    assert lost_of(alone) == lost_of(spread)
    assert len(lost_of(alone)) > 2
    assert alone.summary["state_digest"] == spread.summary["state_digest"]
    per_client = alone.summary["accuracy_per_client"]["personal"]
    assert None not in per_client  # all are scored


@pytest.mark.parametrize("method", ["refprotofl", "fedavg", "fedproto", "fast", "fedpac"])
def test_lost_is_as_good_as_silent(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without dropout in which the same clients fail in the same phases, ends in the same state."""
    dropped = run(tiny(method=method), out=tmp_path / "dropped")
    experiment, client = tiny(method=method), METHODS[method].client
    usual = client.answer

    def silent(self: Any, verb: str, round: int, message: Any) -> Any:
        if verb != "evaluate" and self.context.client_id in draw_lost(experiment, round, verb, range(5)):
            raise RuntimeError("no answer")
        return usual(self, verb, round, message)

    monkeypatch.setattr(client, "answer", silent)
    silenced = run(tiny(method=method, dropout=0.0), out=tmp_path / "silenced")
    failed = [one for one in read_events(silenced.folder) if one["event"] == "client-failed"]
    assert [(one["round"], one["client"]) for one in failed] == lost_of(dropped)
    assert silenced.summary["state_digest"] == dropped.summary["state_digest"]


def test_without_clients_to_lose_the_key_is_refused() -> None:
    with pytest.raises(InputError, match=r"dropout = .* has no effect"):
        prepare(Experiment(method="centralised", dropout=0.1))
