"""The live page: new rounds appear, and a lost connection is restored."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Serve = Callable[[Path], str]


def cut(folder: Path, place: Path, lines: int) -> tuple[Path, list[bytes]]:
    """A run cut after this many events, and the remaining events."""
    copy = Path(shutil.copytree(folder, place / "run"))
    (copy / "summary.json").unlink()
    path = copy / "events.jsonl"
    every = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(every[:lines]))
    return copy, every[lines:]


def append(folder: Path, *lines: bytes) -> None:
    with (folder / "events.jsonl").open("ab") as file:
        file.write(b"".join(lines))


def test_a_new_round_appears(browser: Any, finished_run: Path, tmp_path: Path, served: Serve) -> None:
    folder, rest = cut(finished_run, tmp_path, 4)  # the start, a round, the first evaluation and its round
    browser.open(served(folder))
    browser.until("return document.querySelector('progress').value === 2")
    assert browser.points()["accuracy-by-bytes"] == 3
    append(folder, *rest[:2])
    browser.until("return document.querySelector('progress').value === 3")
    append(folder, *rest[2:])
    browser.until("return document.querySelector('#live .state').innerText === 'Finished'")
    browser.until("return document.getElementById('chart-accuracy-by-bytes').dataset.points === '6'")
    assert browser.complaints() == []


def test_a_run_that_begins_later_appears(browser: Any, finished_run: Path, tmp_path: Path, served: Serve) -> None:
    browser.open(served(tmp_path / "run"))
    assert "Waiting" in browser.run("return document.getElementById('live').innerText")
    shutil.copytree(finished_run, tmp_path / "run")
    browser.until("return document.querySelectorAll('.chart').length > 5")
    browser.until("return document.querySelector('#live .state').innerText === 'Finished'")
    assert browser.complaints() == []


def test_clients_and_the_rest_of_the_time_are_reported(
    browser: Any, finished_run: Path, tmp_path: Path, served: Serve
) -> None:
    folder, _ = cut(finished_run, tmp_path, 4)
    browser.open(served(folder))
    found = browser.run("return document.getElementById('live').innerText")
    assert "round 2 of 4" in found
    assert "left" in found
    states = browser.run("return [...document.querySelectorAll('.clients li')].map(one => one.innerText)")
    assert states == [f"{number}: participated" for number in range(4)]


def test_the_page_of_a_whole_folder_is_watched_too(browser: Any, grid: Path, served: Serve) -> None:
    browser.open(served(grid))
    assert browser.points()["frontier"] == 2
    assert browser.complaints() == []
