"""A run's progress: a line for each change, and a state file with the same for `deploy status`."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from refprotofl.core.errors import MachineError
from refprotofl.deploy.status import Absence, StatusCallback, Wait
from refprotofl.experiment import Experiment

NOON = time.mktime((2026, 1, 2, 12, 0, 0, 0, 0, -1))


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def progress(tmp_path: Path, lines: list[str]) -> StatusCallback:
    return StatusCallback(tmp_path / "state.json", lines.append)


def state(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "state.json").read_text())
    return found


def event(round: int, participants: list[int]) -> dict[str, Any]:
    committed = {"round": round, "seconds": 1.25, "state_digest": "0" * 64}
    return committed | {"asked": [0, 1, 2], "participants": participants}


def test_nodes_that_are_waited_for_are_shown_once_with_the_time(
    progress: StatusCallback, lines: list[str], tmp_path: Path
) -> None:
    one, two = Wait("node-1 (client 1)", "train", NOON), Wait("node-2 (client 2)", "train", NOON + 61)
    progress.waiting([one])
    progress.waiting([one])
    progress.waiting([one, two])
    progress.waiting([two])
    assert lines == [
        "Waiting for node-1 (client 1) since 12:00:00 (train)",
        "Waiting for node-2 (client 2) since 12:01:01 (train)",
    ]
    assert [Wait(**wait) for wait in state(tmp_path)["waiting"]] == [two]


def test_absent_nodes_are_shown_with_the_reason_until_they_take_part_again(
    progress: StatusCallback, lines: list[str], tmp_path: Path
) -> None:
    progress.on_start(Experiment(clients=3, rounds=4), tmp_path / "out", 3, 0)
    progress.absent(1, "node-1 (client 1)", 1, "late")
    progress.absent(1, "node-1 (client 1)", 1, "late")
    progress.absent(2, "node-2 (client 2)", 1, "data")
    progress.on_round(event(1, [0]), None)
    absent = [Absence(**one) for one in state(tmp_path)["absent"]]
    assert absent == [
        Absence("node-1 (client 1)", 1, "it did not answer in time"),
        Absence("node-2 (client 2)", 1, "its data are missing or damaged"),
    ]
    progress.on_round(event(2, [0, 1]), {"accuracy": {"personal": 0.5, "own": None}})
    assert [one["client"] for one in state(tmp_path)["absent"]] == ["node-2 (client 2)"]
    assert lines[1:] == [
        "Absent from round 1: node-1 (client 1): it did not answer in time",
        "Absent from round 1: node-2 (client 2): its data are missing or damaged",
        "round 1 of 4, 1.2 s, 2 absent",
        "round 2 of 4, 1.2 s, 1 absent, personal 50.00 %",
    ]


def test_the_state_file_says_how_far_the_run_is(progress: StatusCallback, lines: list[str], tmp_path: Path) -> None:
    progress.on_start(Experiment(clients=3, rounds=4), tmp_path / "out", 3, 2)
    assert state(tmp_path) == {
        "round": 2,
        "rounds": 4,
        "out": str(tmp_path / "out"),
        "waiting": [],
        "absent": [],
    }
    assert ", resumed after round 2; run folder" in lines[0]
    progress.waiting([Wait("node-1 (client 1)", "train", NOON)])
    progress.on_round(event(3, [0, 1, 2]), None)
    assert (state(tmp_path)["round"], state(tmp_path)["waiting"]) == (3, [])
    assert lines[-1] == "round 3 of 4, 1.2 s"


def test_a_full_disk_does_not_end_the_run(
    progress: StatusCallback, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise MachineError("The disk is full.")

    monkeypatch.setattr("refprotofl.deploy.status.write_whole", full)
    progress.absent(1, "node-1 (client 1)", 1, "late")
    assert len(lines) == 1
