"""The progress of a grid of runs on the terminal."""

import io
import re
from pathlib import Path

import filelock
import pytest
from rich.console import Console
from tests.studies.conftest import TINY

from refprotofl.cli.progress import RunNumbers, StudyProgress
from refprotofl.studies.pool import run_trials
from refprotofl.studies.results import KeptResults
from refprotofl.studies.rows import Row
from refprotofl.studies.trials import Base, Trial, seed_by_seed


@pytest.fixture
def cells(tmp_path: Path) -> list[Trial]:
    rows = [Row(name, name) for name in ("local", "fedavg:share=full")]
    return seed_by_seed(Base(None, "quick", tuple(TINY)), rows, [0], tmp_path / "runs")


def shown(cells: list[Trial], kept: KeptResults | None = None, terminal: bool = False) -> str:
    console = Console(file=io.StringIO(), width=200, force_terminal=terminal)
    callback = StudyProgress(console, cells)
    list(run_trials(cells, None, 1, callback.watch, kept))
    callback.on_close()
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def first_is_busy(cells: list[Trial], monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold the first run for three polls, like another process."""
    cells[0].folder.mkdir(parents=True)
    lock, looks = filelock.FileLock(cells[0].folder / ".lock"), []
    lock.acquire()

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            lock.release()

    monkeypatch.setattr("refprotofl.studies.pool.time.sleep", sleep)


@pytest.mark.usefixtures("first_is_busy")
def test_a_run_is_shown_when_it_begins_and_when_it_ends_and_not_while_it_is_waited_for(cells: list[Trial]) -> None:
    lines = shown(cells).splitlines()
    assert lines[::2] == ["fedavg:share=full, seed 0 (2/2)", "local, seed 0 (1/2)"]
    for begun, ended, protocol in zip(lines[::2], lines[1::2], ("global", "personal"), strict=True):
        assert re.fullmatch(rf"{re.escape(begun)}: {protocol} \d+\.\d\d %, \d+ s", ended)


@pytest.mark.usefixtures("first_is_busy")
def test_the_bar_counts_rounds_in_whatever_order_they_are_done(cells: list[Trial]) -> None:
    assert "4/4" in shown(cells, terminal=True)


def test_runs_are_numbered_through_all_batches_of_a_study(cells: list[Trial]) -> None:
    console = Console(file=io.StringIO(), width=200)
    numbers = RunNumbers(3)
    for batch in (cells[:1], cells):  # the second one begins with a run that was done
        callback = StudyProgress(console, batch, numbers)
        list(run_trials(batch, None, 1, callback.watch))
        callback.on_close()
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[::2] == ["local, seed 0 (1/3)", "fedavg:share=full, seed 0 (2/3)"]
    unknown = RunNumbers(None)
    unknown.add(cells)
    assert unknown.of(cells[1]) == "2"


def test_the_bar_counts_what_was_done_before(cells: list[Trial], tmp_path: Path) -> None:
    kept = KeptResults(tmp_path / "cells.jsonl")
    shown(cells[1:], kept)
    shown(cells[:1])
    assert "4/4" in shown(cells, kept, terminal=True)
    assert shown(cells, kept) == ""
