"""events.jsonl after a crash: each committed round is in it exactly once, in order, and nothing else is lost."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from refprotofl.core.errors import DataError
from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.records.folder import read_events

Events = list[tuple[str, int | None]]

FIRST: Events = [("start", None), ("evaluation", 1), ("round", 1)]
SECOND: Events = [("evaluation", 2), ("round", 2), ("end", None)]


def events_of(folder: Path) -> Events:
    return [(event["event"], event.get("round")) for event in read_events(folder)]


def test_the_order_of_events(cut_off: Path, tiny: Callable[..., Experiment]) -> None:
    assert events_of(cut_off) == FIRST
    run(tiny(), out=cut_off, resume=True)
    assert events_of(cut_off) == [*FIRST, ("resume", None), *SECOND]


@pytest.mark.parametrize("lines", [1, 2])
@pytest.mark.parametrize("torn", [False, True])
def test_events_of_a_committed_round_are_kept(
    cut_off: Path, tiny: Callable[..., Experiment], lines: int, torn: bool
) -> None:
    path = cut_off / "events.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:lines]) + (whole[lines][:-7] if torn else b""))
    run(tiny(), out=cut_off, resume=True)
    assert events_of(cut_off) == [*FIRST, ("resume", None), *SECOND]
    assert path.read_bytes().splitlines(keepends=True)[2] == whole[2]


@pytest.mark.parametrize("lost", ["all", "the start", "half a line", "the file"])
def test_truncated_events_are_refused_and_left_alone(cut_off: Path, tiny: Callable[..., Experiment], lost: str) -> None:
    path = cut_off / "events.jsonl"
    start, *others = path.read_bytes().splitlines(keepends=True)
    left = {"all": b"", "the start": b"".join(others), "half a line": start[: len(start) // 2], "the file": None}[lost]
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    with pytest.raises(DataError, match=r"events\.jsonl (is shorter|is missing|does not belong)"):
        run(tiny(), out=cut_off, resume=True)
    assert (path.read_bytes() if path.exists() else None) == left


def test_events_of_a_round_that_was_not_committed_are_dropped(cut_off: Path, tiny: Callable[..., Experiment]) -> None:
    with (cut_off / "events.jsonl").open("a") as file:
        file.write(json.dumps({"event": "round", "round": 2, "state_digest": "of a round that never was"}) + "\n")
    run(tiny(), out=cut_off, resume=True)
    assert events_of(cut_off) == [*FIRST, ("resume", None), *SECOND]
    assert "never was" not in (cut_off / "events.jsonl").read_text()


def test_a_run_ends_once(finished_copy: Path, tiny: Callable[..., Experiment]) -> None:
    (finished_copy / "summary.json").unlink()  # the crash came between the last event and the summary
    run(tiny(), out=finished_copy, resume=True)
    assert events_of(finished_copy) == [*FIRST, *SECOND[:2], ("resume", None), ("end", None)]


@pytest.mark.parametrize("damage", ["{not json", "7", '{"no": "name"}', "\0\0\0\0"])
def test_a_damaged_line_in_the_middle_is_reported_and_left_alone(
    cut_off: Path, tiny: Callable[..., Experiment], damage: str
) -> None:
    path = cut_off / "events.jsonl"
    path.write_text(damage + "\n" + path.read_text())
    before = path.read_bytes()
    with pytest.raises(DataError, match=r"events\.jsonl does not belong to the checkpoint's manifest"):
        run(tiny(), out=cut_off, resume=True)
    assert path.read_bytes() == before


def test_events_carry_the_state_digest_of_their_round(cut_off: Path, tiny: Callable[..., Experiment]) -> None:
    manifest = json.loads((cut_off / "checkpoint" / "manifest.json").read_text())
    assert read_events(cut_off)[-1]["state_digest"] == manifest["state_digest"]
    finished = run(tiny(), out=cut_off, resume=True)
    digests = [event["state_digest"] for event in read_events(cut_off) if event["event"] == "round"]
    assert digests == [manifest["state_digest"], finished.summary["state_digest"]]
    assert digests[0] != digests[1]
