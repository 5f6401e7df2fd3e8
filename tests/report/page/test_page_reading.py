"""A run folder is read as it grows, and whatever is wrong with one is a sentence."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.report.page.conftest import TINY

from refprotofl import Experiment
from refprotofl.core.errors import DataError, InputError
from refprotofl.federation import run
from refprotofl.report.page import run_reader
from refprotofl.report.page.collect import find_runs, gather
from refprotofl.report.page.run_reader import RunReader, read_run


def test_a_line_that_is_not_whole_yet_waits(finished: Path) -> None:
    path = finished / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:100])
    reader = RunReader(finished)
    assert [number for number, _ in reader.read()] == [1]
    with path.open("ab") as file:
        file.write(lines[1][100:] + lines[2])
    assert [number for number, _ in reader.read()] == [2, 3]
    assert reader.read() == []
    assert reader.run.rounds_done == 2 - (json.loads(lines[2])["event"] == "evaluation")


def test_a_file_that_was_replaced_is_read_anew(finished: Path) -> None:
    reader = RunReader(finished)
    reader.read()
    before = len(reader.run.rounds)
    path = finished / "events.jsonl"
    part = finished / "new"
    part.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    part.replace(path)
    assert [number for number, _ in reader.read()] == [1, 2]
    assert len(reader.run.rounds) == 1 < before


def changed(finished: Path, **values: Any) -> None:
    path = finished / "events.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["event"] == "round":
            line.update(values)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.mark.parametrize(
    "values",
    [
        {"traffic": "much"},
        {"traffic": [{"client": -1, "phase": "x", "purpose": "training", "direction": "up", "payload_bytes": 1}]},
        {"traffic": [{"client": 0, "phase": "x", "purpose": "training", "direction": "up", "payload_bytes": 1e400}]},
        {"seconds": float("nan")},
        {"seconds": -1},
        {"masks": {"clients": 1}},
        {"spent": {str(number): 1.0 for number in range(100)}},
        {"participants": ["<script>"]},
        {"round": "one"},
    ],
)
def test_a_round_of_another_kind_is_an_error_message(finished: Path, values: dict[str, Any]) -> None:
    changed(finished, **values)
    with pytest.raises(DataError, match=r"events\.jsonl: line 2 is not a valid event"):
        read_run(finished)


@pytest.mark.parametrize("line", [b"[]", b"7", b"[" * 100_000, b"\xff\xfe", b'{"event": 1}', b"{", b""])
def test_lines_that_are_no_events_are_an_error_message(finished: Path, line: bytes) -> None:
    path = finished / "events.jsonl"
    path.write_bytes(line + b"\n" + path.read_bytes())
    with pytest.raises(DataError, match="line 1 is not a valid event"):
        read_run(finished)


def test_events_that_are_not_known_pass(finished: Path) -> None:
    with (finished / "events.jsonl").open("a") as file:
        file.write('{"event": "of-a-later-version", "anything": ["<b>"]}\n')
    assert read_run(finished).rounds_done == 4


def test_a_line_without_an_end_is_not_read_for_ever(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_reader, "LONGEST_LINE", 1000)
    with pytest.raises(DataError, match="is longer than any that a run writes"):
        read_run(finished)


@pytest.mark.parametrize("name", ["experiment.json", "summary.json"])
def test_a_file_that_is_too_large_is_not_read(finished: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run_reader._MOST, name, 1e-4)
    with pytest.raises(DataError, match=f"{name} is larger than"):
        read_run(finished)


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("name", ["experiment.json", "events.jsonl", "summary.json"])
def test_nothing_in_a_run_folder_leads_elsewhere(finished: Path, tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "target").write_bytes((finished / name).read_bytes())
    (finished / name).unlink()
    (finished / name).symlink_to(tmp_path / "target") if kind == "link" else os.mkfifo(finished / name)
    with pytest.raises(DataError, match=f"{name} is a {kind}, which is not followed"):
        gather([finished])


def test_a_linked_folder_within_a_grid_is_not_followed(grid: Path, tmp_path: Path) -> None:
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid" / "elsewhere").symlink_to(grid / "fedavg-0")
    with pytest.raises(InputError, match="is not a run folder and contains none"):
        find_runs([tmp_path / "grid"])


def test_a_damaged_run_costs_a_grid_its_own_place_alone(grid: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(grid, tmp_path / "grid"))
    (copy / "fedavg-1" / "events.jsonl").write_text("{\n")
    page = gather([copy])
    assert page.subtitle == "3 runs, 3 of them finished"
    assert len(page.notes) == 1
    assert "fedavg-1" in page.notes[0]


def test_what_is_not_there_is_an_error_message(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Path not found"):
        gather([tmp_path / "nowhere"])
    with pytest.raises(InputError, match="is not a run folder"):
        gather([tmp_path])


OWN = """
from refprotofl.methods import find_method

class Own:
    server = find_method("fedavg").server
    client = find_method("fedavg").client
"""


def test_code_that_a_folder_names_is_not_imported(grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_page_method.py").write_text(OWN)
    copy = Path(shutil.copytree(grid, tmp_path / "grid"))
    run(Experiment.parse({**TINY, "method": "own_page_method:Own"}), out=copy / "own")
    assert gather([copy], trust_code=True).subtitle == "5 runs, 5 of them finished"
    del sys.modules["own_page_method"]
    page = gather([copy])
    assert page.subtitle == "5 runs, 4 of them finished"  # it is there by its curve
    assert gather([copy / "own"]).figures
    assert "own_page_method" not in sys.modules
