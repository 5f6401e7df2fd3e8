"""`--out` of commands over grids of runs."""

from pathlib import Path
from typing import Any

import pytest

GRIDS = {
    "compare": ["--methods", "local"],
    "tune": ["--methods", "local", "--search", "train.lr=0.1"],
    "frontier": ["--methods", "local", "--budget", "10 MB"],
    "attack": ["--kind", "signflip"],
    "reproduce": ["accuracy", "--methods", "local"],
}


@pytest.mark.parametrize("below", ["", "grid"])
@pytest.mark.parametrize("command", GRIDS)
def test_a_file_is_no_place_for_runs(refprotofl: Any, tmp_path: Path, command: str, below: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    outcome = refprotofl(command, *GRIDS[command], "--out", file / below)
    assert outcome.code == 2, outcome.err
    assert f"{file} is a file; name a folder." in outcome.err
    assert file.read_text() == "mine"


def test_a_figure_needs_a_folder_too(refprotofl: Any, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    assert refprotofl("reproduce", "partition-figure", "--out", file).code == 2
