"""Damage in a run folder is reported by file, with exit code 3; recoverable files are restored."""

import json
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from refprotofl.federation import RunResult, run
from refprotofl.federation.local_run import OpenEngine

if TYPE_CHECKING:
    from tests.cli.conftest import Command


def truncate(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("damage", [truncate, flip])
@pytest.mark.parametrize("name", ["server-1.safetensors", "clients/000001-1.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_is_reported_by_file(
    refprotofl: "Command", cut_off: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    """There is no earlier checkpoint to fall back to."""
    path = cut_off / "checkpoint" / name
    path.write_bytes(damage(path.read_bytes()))
    (cut_off / "checkpoint" / "manifest-1.json").unlink()
    for command in (("run", "--resume", "--workers", 1, "--out", cut_off), ("verify", cut_off)):
        outcome = refprotofl(*command)
        assert outcome.code == 3, outcome.err
        assert str(path) in outcome.err
        assert outcome.err.splitlines()[-1].startswith("error: ")
        assert outcome.err.count("error: ") == 1
    assert not (cut_off / "summary.json").exists()


def test_a_client_file_that_is_gone_is_reported(refprotofl: "Command", cut_off: Path) -> None:
    path = cut_off / "checkpoint" / "clients" / "000000-1.safetensors"
    path.unlink()
    outcome = refprotofl("run", "--resume", "--workers", 1, "--out", cut_off)
    assert outcome.code == 3
    assert f"The checkpoint file {path} cannot be read: No such file or directory.\n" in outcome.err


@pytest.mark.parametrize("name", ["experiment.json", "summary.json"])
def test_damaged_json_is_reported_by_file(refprotofl: "Command", finished_copy: Path, name: str) -> None:
    (finished_copy / name).write_text("{")
    outcome = refprotofl("run", "--resume", "--out", finished_copy)
    assert outcome.code == 3
    assert f"{finished_copy / name} is damaged" in outcome.err


@pytest.mark.parametrize("damage", [truncate, flip, lambda _: None], ids=["truncate", "flip", "remove"])
def test_a_public_set_that_a_client_lost_is_sent_again(
    refprotofl: "Command", cut_off: Path, undisturbed: RunResult, damage: Callable[[bytes], bytes | None]
) -> None:
    (path,) = (cut_off / "checkpoint" / "blobs").iterdir()
    whole = path.read_bytes()
    damaged = damage(whole)
    path.unlink() if damaged is None else path.write_bytes(damaged)
    outcome = refprotofl("run", "--resume", "--workers", 1, "--out", cut_off, "--json")
    assert outcome.code == 0, outcome.err
    summary = json.loads(outcome.out)
    assert summary["state_digest"] == undisturbed.summary["state_digest"]
    assert summary["accuracy"] == undisturbed.summary["accuracy"]
    assert path.read_bytes() == whole
    for client, messages in ((summary, 6), (undisturbed.summary, 4)):  # one client received it again
        assert client["communication"]["one_off"]["messages"] == messages


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root can mount a small disk; tests/records/test_full_disk.py covers the rest")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_ends_the_run_which_continues_when_there_is_space(
    refprotofl: "Command",
    tiny: Path,
    small_disk: Path,
    undisturbed: RunResult,
    patient: OpenEngine,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    # Through the command the workers, too, are to write until the disk is full.
    monkeypatch.setattr("refprotofl.federation.session.run", partial(run, engine=patient))
    ballast, out = small_disk / "ballast", small_disk / "run"
    # A round's states take 330 kB and stay until the next round's are written: there is space for one round.
    ballast.write_bytes(bytes(500_000))
    outcome = refprotofl("run", tiny, "--workers", workers, "--out", out)
    assert outcome.code == 4
    assert "The disk is full: cannot write" in outcome.err
    assert "--resume" in outcome.err
    assert not list(out.rglob("*.part"))
    assert not (out / "summary.json").exists()
    ballast.unlink()
    outcome = refprotofl("run", "--resume", "--workers", 1, "--out", out, "--json")
    assert outcome.code == 0, outcome.err
    assert f"Resuming {out} after round 1" in outcome.err
    assert json.loads(outcome.out)["state_digest"] == undisturbed.summary["state_digest"]


@pytest.mark.parametrize("name", ["summary.json", "experiment.json", "checkpoint/manifest.json"])
def test_deep_nesting_is_damage(refprotofl: "Command", finished_copy: Path, name: str) -> None:
    (finished_copy / name).write_text("[" * 100_000)
    command = ("run", "--resume", "--out", finished_copy) if name == "summary.json" else ("verify", finished_copy)
    outcome = refprotofl(*command)
    assert outcome.code == 3
    assert "is damaged" in outcome.err
