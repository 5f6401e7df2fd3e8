"""`min-replies`: a round in which too few clients are left is no round, and the run can be resumed."""

from pathlib import Path

import pytest
from tests.tiny import tiny_keys

from refprotofl.core.errors import InputError, RunError
from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.records.folder import read_events

TINY = tiny_keys()


def test_below_it_the_run_stops_and_resumes_when_it_may(tmp_path: Path) -> None:
    losing = {**TINY, "dropout": 0.6}
    with pytest.raises(RunError, match=r"clients are left, fewer than min-replies = 4 \(client"):
        run(Experiment.parse({**losing, "min-replies": 4}), out=tmp_path / "run")
    finished = run(Experiment.parse(losing), out=tmp_path / "run", resume=True)
    alone = run(Experiment.parse(losing), out=tmp_path / "alone")
    assert finished.summary["state_digest"] == alone.summary["state_digest"]
    assert [event["round"] for event in read_events(tmp_path / "run") if event["event"] == "round"] == [1, 2]


def test_more_than_are_asked_are_refused() -> None:
    with pytest.raises(InputError, match="has min-replies = 3, but only 2 clients take part in a round"):
        Experiment.parse({**TINY, "fraction": 0.5, "min-replies": 3})
