"""--resume with finished, interrupted, foreign, changed and new folders; locks of run folders."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from refprotofl.federation import RunResult

if TYPE_CHECKING:
    from tests.cli.conftest import Command

HOLD = """
import filelock, sys, time
lock = filelock.FileLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
time.sleep(99)
"""


def round_lines(folder: Path) -> list[int]:
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event["round"] for event in events if event["event"] == "round"]


def digest_of(folder: Path) -> str:
    return str(json.loads((folder / "summary.json").read_text())["state_digest"])


def test_a_finished_run_is_left_as_it_is(refprotofl: "Command", finished_copy: Path, undisturbed: RunResult) -> None:
    before = {path: path.read_bytes() for path in finished_copy.rglob("*") if path.is_file()}
    outcome = refprotofl("run", "--resume", "--out", finished_copy, "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out) == undisturbed.summary
    assert {path: path.read_bytes() for path in finished_copy.rglob("*") if path.is_file()} == before


def test_a_cut_off_run_continues_without_its_settings(
    refprotofl: "Command", cut_off: Path, undisturbed: RunResult
) -> None:
    outcome = refprotofl("run", "--resume", "--workers", 1, "--out", cut_off)
    assert outcome.code == 0
    assert f"Resuming {cut_off} after round 1\n" in outcome.err
    assert "since round 1" in outcome.err
    assert digest_of(cut_off) == undisturbed.summary["state_digest"]
    assert round_lines(cut_off) == [1, 2]


def test_the_same_experiment_may_be_named_again(
    refprotofl: "Command", cut_off: Path, tiny: Path, undisturbed: RunResult
) -> None:
    assert refprotofl("run", tiny, "--resume", "--workers", 1, "--out", cut_off).code == 0
    assert digest_of(cut_off) == undisturbed.summary["state_digest"]


def test_a_new_folder_starts(refprotofl: "Command", tiny: Path, tmp_path: Path, undisturbed: RunResult) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "new" / "below"):
        assert refprotofl("run", tiny, "--resume", "--workers", 1, "--out", out).code == 0
        assert digest_of(out) == undisturbed.summary["state_digest"]


def test_a_folder_with_a_run_needs_the_word(refprotofl: "Command", tiny: Path, cut_off: Path) -> None:
    before = (cut_off / "events.jsonl").read_bytes()
    outcome = refprotofl("run", tiny, "--workers", 1, "--out", cut_off)
    assert outcome.code == 2
    assert f"{cut_off} already holds a run: continue it with --resume" in outcome.err
    assert (cut_off / "events.jsonl").read_bytes() == before


def test_a_changed_experiment_is_refused_by_key(
    refprotofl: "Command", tiny: Path, cut_off: Path, finished_copy: Path
) -> None:
    changes = ("--set", "train.lr=0.5", "--set", "seed=3", "--set", "refprotofl.keep=0.5")
    for folder in (cut_off, finished_copy):
        outcome = refprotofl("run", tiny, *changes, "--resume", "--workers", 1, "--out", folder)
        assert outcome.code == 2
        assert "another experiment; it differs in refprotofl.keep, seed, train.lr." in outcome.err


def test_without_a_run_and_without_settings_nothing_starts(refprotofl: "Command", tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "gone"):
        for device in ((), ("--device", "cpu")):
            outcome = refprotofl("run", "--resume", "--out", out, *device)
            assert outcome.code == 2
            assert f"No run to resume in {out}." in outcome.err
    assert not (tmp_path / "gone").exists()
    assert list((tmp_path / "empty").iterdir()) == []


def test_settings_are_compared_with_the_run_and_not_with_a_preset(refprotofl: "Command", cut_off: Path) -> None:
    outcome = refprotofl("run", "--resume", "--out", cut_off, "--set", "train.lr=0.5")
    assert outcome.code == 2
    assert "it differs in train.lr." in outcome.err


def test_more_rounds_make_a_finished_run_longer(
    refprotofl: "Command", tiny: Path, finished_copy: Path, tmp_path: Path
) -> None:
    longer = ("--set", "rounds=3", "--workers", 1)
    assert refprotofl("run", tiny, *longer, "--out", tmp_path / "planned").code == 0
    outcome = refprotofl("run", "--resume", "--out", finished_copy, *longer)
    assert outcome.code == 0, outcome.err
    assert round_lines(finished_copy) == [1, 2, 3]
    assert digest_of(finished_copy) == digest_of(tmp_path / "planned")
    assert refprotofl("verify", finished_copy).code == 0


@contextmanager
def held(lock: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process has the run folder's lock."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()


def test_only_one_process_at_a_time_and_a_dead_one_does_not_count(
    refprotofl: "Command", cut_off: Path, undisturbed: RunResult
) -> None:
    with held(cut_off / ".lock"):
        outcome = refprotofl("run", "--resume", "--workers", 1, "--out", cut_off)
        assert outcome.code == 2
        assert f"Another process is running in {cut_off}" in outcome.err
        assert round_lines(cut_off) == [1]
    assert (cut_off / ".lock").exists()  # its holder was killed
    assert refprotofl("run", "--resume", "--workers", 1, "--out", cut_off).code == 0
    assert digest_of(cut_off) == undisturbed.summary["state_digest"]
