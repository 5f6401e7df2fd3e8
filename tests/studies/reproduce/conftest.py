"""Grids whose runs never ran: their numbers are made up, so that what tables say of them is known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from refprotofl.studies.reproduce.studies import Grid, Results, Study
from refprotofl.studies.results import Result
from refprotofl.studies.trials import Trial

Accuracy = Callable[[str, str, int], float | None]  # of the data set, the row's label and the seed


def made_up(cell: Trial, accuracy: float, **changes: Any) -> Result:
    """A finished run: `uplink` 10, `downlink` 20, `one_off` 5 bytes, a model of 100 parameters, 1 participation."""
    sent = {"parameters": 7, "prototype_values": 3, "payload_bytes": 10, "messages": 2}
    scores = dict.fromkeys(("personal", "personal_before"), accuracy)
    summary = {
        "experiment": cell.experiment.plain(),
        "accuracy": scores,
        "accuracy_per_client": {"personal": [accuracy, accuracy]},
        "communication": {
            "uplink": sent,
            "downlink": {**sent, "payload_bytes": 20},
            "one_off": {"payload_bytes": 5, "messages": 1},
        },
        "full_model": {"parameters": 100, "participations": 1},
        "seconds": {"total": 1.0},
        "steps": 4,
        **changes,
    }
    origin = {"results": 1, "data": cell.experiment.dataset, "code": {}}
    curve = [{"round": 1, "accuracy": scores, "bytes": 18}, {"round": 2, "accuracy": scores, "bytes": 35}]
    return cast(Result, {"asked": cell.experiment.hash, "summary": summary, "curve": curve, "origin": origin})


@pytest.fixture
def grid_of(tmp_path: Path) -> Callable[..., Grid]:
    def make(*studies: Study, preset: str = "small", seeds: tuple[int, ...] = (0, 1, 2), **others: Any) -> Grid:
        return Grid(studies, preset, others.pop("settings", ()), seeds, tmp_path, **others)

    return make


@pytest.fixture
def run_all() -> Callable[[Grid, Accuracy], Results]:
    """A made-up result for every run of a grid; one without an accuracy is not finished."""

    def run_all(grid: Grid, accuracy: Accuracy) -> Results:
        found: dict[str, Result] = {}
        for study, block, row in grid.rows():
            for seed in grid.seeds:
                cell, value = grid.cell(study, block, row, seed), accuracy(block.dataset, row.label, seed)
                if value is not None:
                    found[cell.experiment.hash] = made_up(cell, value)
        return found

    return run_all
