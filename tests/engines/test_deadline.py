"""A client that takes longer than `deadline` stops the run; committed rounds stay, and the run can be resumed."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refprotofl.core.errors import RunError
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, run
from refprotofl.federation.local_run import OpenEngine
from refprotofl.records.folder import read_events


class Stopper(Callback):
    """Stops all workers after the first round."""

    def __init__(self) -> None:
        self.stopped: list[multiprocessing.Process] = []

    def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
        self.stopped = multiprocessing.active_children()  # type: ignore[assignment]
        for process in self.stopped:
            os.kill(process.pid, signal.SIGSTOP)  # type: ignore[arg-type]


def rounds(folder: Path) -> list[int]:
    return [event["round"] for event in read_events(folder) if event["event"] == "round"]


def test_workers_that_hang_are_found_and_ended(
    uneven: Callable[..., Experiment], tmp_path: Path, patient: OpenEngine
) -> None:
    out, callback = tmp_path / "run", Stopper()
    with pytest.raises(
        RunError,
        match=r"Round 2, client \d: \w+ took longer than deadline = 3 seconds\. .*kept.*--resume\.",
    ):
        run(uneven(deadline=3), out=out, workers=2, engine=patient, callback=callback)
    assert len(callback.stopped) == 2
    assert multiprocessing.active_children() == []
    assert rounds(out) == [1]
    resumed = run(uneven(), out=out, resume=True)  # the deadline is no part of the experiment
    assert rounds(out) == [1, 2, 3]
    assert resumed.summary["state_digest"] == run(uneven(), out=tmp_path / "other").summary["state_digest"]


@pytest.mark.parametrize("workers", [1, 2])  # with two, this process answers until they have started
def test_a_client_in_this_process_is_measured_when_it_has_answered(
    uneven: Callable[..., Experiment], tmp_path: Path, workers: int
) -> None:
    with pytest.raises(RunError, match=r"Round 1, client \d: join took longer than deadline = 1e-09 seconds"):
        run(uneven(deadline=1e-9), out=tmp_path / "run", workers=workers)
    assert rounds(tmp_path / "run") == []
    resumed, other = run(uneven(), out=tmp_path / "run", resume=True), run(uneven(), out=tmp_path / "other")
    assert resumed.summary["state_digest"] == other.summary["state_digest"]


def test_a_deadline_that_is_met_changes_nothing(uneven: Callable[..., Experiment], tmp_path: Path) -> None:
    one, other = (run(uneven(deadline=seconds), out=tmp_path / str(seconds)).summary for seconds in (0, 600))
    assert one["state_digest"] == other["state_digest"]
    assert one["experiment_hash"] == other["experiment_hash"]
