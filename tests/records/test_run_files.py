"""Files are whole or not there; a run folder belongs to one run and one process."""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from refprotofl.core.errors import DataError, InputError, RunError
from refprotofl.core.state import State, digest_state
from refprotofl.engines.local.store import DiskBlobStore
from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, run
from refprotofl.federation.participation import draw_cohort
from refprotofl.records.atomic_files import write_whole
from refprotofl.records.checkpoint import read_manifest
from refprotofl.records.folder import RunFolder, read_experiment
from refprotofl.records.state_files import load_state, save_state
from refprotofl.wire import Message


def refuse(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("step", [(os, "fsync"), (Path, "replace")], ids=["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[object, str]
) -> None:
    file = tmp_path / "state"
    write_whole(file, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(*step, refuse(errno.ENOSPC))
        with pytest.raises(RunError, match=r"disk is full.*state.*Free some space"):
            write_whole(file, b"new and longer")
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"


def test_an_interrupt_in_the_middle_of_a_write_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "state", b"new")
    assert os.listdir(tmp_path) == []


def test_another_write_error_names_the_file_and_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"Cannot write .*nowhere/file: No such file or directory\."):
        write_whole(tmp_path / "nowhere" / "file", b"")


def test_a_state_comes_back_with_its_types_and_bits(tmp_path: Path) -> None:
    state: State = {
        "weights": torch.tensor([[1.5, float("nan")], [-0.0, 3e-45]]).T,  # not contiguous
        "mask": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3, dtype=torch.int64),
        "round": 2**40,
        "public": "digest",
    }
    save_state(tmp_path / "state", state)
    back = load_state(tmp_path / "state", digest_state(state))
    assert back.keys() == state.keys()
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            found = back[name]
            assert isinstance(found, torch.Tensor)
            assert found.dtype == value.dtype
            assert found.shape == value.shape
            assert found.contiguous().view(torch.uint8).equal(value.contiguous().view(torch.uint8))
        else:
            assert back[name] == value


@pytest.mark.parametrize(
    ("problem", "complaint"),
    [
        (
            "I/O error: No space left on device (os error 28)",
            r"The disk is full: cannot write .*/state\. Free some space",
        ),
        ("I/O error: Input/output error (os error 5)", r"Cannot write .*/state: .*Input/output error"),
    ],
)
def test_a_state_that_cannot_be_written_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str, complaint: str
) -> None:
    def fail(tensors: object, part: Path, metadata: object) -> None:
        part.write_bytes(b"half of")
        raise safetensors.SafetensorError(f"Error while serializing: {problem}")

    monkeypatch.setattr(safetensors.torch, "save_file", fail)
    with pytest.raises(RunError, match=complaint):
        save_state(tmp_path / "state", {"weights": torch.ones(3)})
    assert os.listdir(tmp_path) == []


def test_clients_files_are_their_owners_alone(undisturbed: RunResult) -> None:
    for folder in ("clients", "blobs"):
        assert stat.S_IMODE((undisturbed.folder / "checkpoint" / folder).stat().st_mode) == 0o700


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_only_files_of_the_last_rounds_are_kept(tiny: Callable[..., Experiment], tmp_path: Path, keep: int) -> None:
    run(tiny(rounds=4, keep_checkpoints=keep), out=tmp_path / "run")
    checkpoint, rounds = tmp_path / "run" / "checkpoint", range(5 - keep, 5)
    expected = [f"00000{client}-{round}.safetensors" for client in (0, 1) for round in rounds]
    assert sorted(os.listdir(checkpoint / "clients")) == expected
    assert sorted(path.name for path in checkpoint.glob("server-*")) == [f"server-{n}.safetensors" for n in rounds]
    kept = [f"manifest-{round}.json" for round in rounds] if keep > 1 else []
    assert sorted(path.name for path in checkpoint.glob("manifest*")) == [*kept, "manifest.json"]


def test_a_client_that_was_not_asked_has_no_file(tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    experiment = tiny(clients=6, fraction=0.34, rounds=2, min_size=2, evaluate={"every": 1, "clients": 6})
    run(experiment, out=tmp_path / "run")
    asked = {client for round in (1, 2) for client in draw_cohort(experiment, round)}
    assert len(asked) < 6
    files = os.listdir(tmp_path / "run" / "checkpoint" / "clients")
    assert {int(name.partition("-")[0]) for name in files} == asked


def test_no_flipped_bit_changes_unnoticed_what_a_manifest_says(finished_copy: Path) -> None:
    path = finished_copy / "checkpoint" / "manifest.json"
    whole, manifest = path.read_bytes(), read_manifest(path.parent)
    assert manifest["progress"]["round"] == 2
    for place in range(0, len(whole), 11):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with contextlib.suppress(DataError):
            assert read_manifest(path.parent) == manifest  # the last digit of a float need not matter


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"clients": "two"}'])
def test_an_experiment_that_was_changed_is_not_run(finished_copy: Path, text: str) -> None:
    (finished_copy / "experiment.json").write_text(text)
    with pytest.raises(DataError, match=r"experiment\.json (was changed|is damaged)"):
        read_experiment(finished_copy)


def test_the_experiment_is_recorded_with_its_hash(undisturbed: RunResult) -> None:
    plain = json.loads((undisturbed.folder / "experiment.json").read_text())
    assert plain.pop("hash") == undisturbed.summary["experiment_hash"]
    assert plain == undisturbed.summary["experiment"]
    assert plain["input"]["class-names"] == ["0", "1", "2"]
    assert read_experiment(undisturbed.folder).hash == undisturbed.summary["experiment_hash"]


def test_a_blob_store_keeps_equal_messages_once_and_mends_damaged_ones(tmp_path: Path) -> None:
    place = tmp_path / "blobs"
    place.mkdir()
    images = torch.arange(6, dtype=torch.uint8).reshape(2, 3)
    message: Message = {"images": images}
    digest = DiskBlobStore(tmp_path).put(message)
    assert DiskBlobStore(tmp_path).put(dict(message)) == digest
    assert os.listdir(place) == [digest]
    (place / digest).write_bytes(b"rubbish")
    assert DiskBlobStore(tmp_path).get(digest) is None
    blobs = DiskBlobStore(tmp_path)
    assert blobs.put(message) == digest
    found = DiskBlobStore(tmp_path).get(digest)
    assert found is not None
    assert isinstance(found["images"], torch.Tensor)
    assert found["images"].equal(images)


def test_a_blob_store_that_could_not_write_does_not_claim_to_have(tmp_path: Path) -> None:
    blobs = DiskBlobStore(tmp_path / "gone")
    for _ in range(2):
        with pytest.raises(RunError):
            blobs.put({"images": torch.zeros(2)})


def test_one_folder_is_for_one_process(tmp_path: Path) -> None:
    first, second = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    first.open(resume=False)
    with pytest.raises(InputError, match="Another process is running"):
        second.open(resume=True)
    first.close()
    second.open(resume=True)
    second.close()


def test_a_refused_folder_is_free_again(finished_copy: Path, tiny: Callable[..., Experiment]) -> None:
    with pytest.raises(InputError, match="already holds a run"):
        run(tiny(), out=finished_copy)
    assert run(tiny(), out=finished_copy, resume=True).summary["rounds_done"] == 2


@pytest.mark.skipif(os.name == "nt", reason="there is no umask")
def test_no_other_user_can_write_to_a_run_whatever_the_umask(tiny: Callable[..., Experiment], tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = run(tiny(), out=tmp_path / "run").folder
    finally:
        os.umask(before)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"experiment.json", "events.jsonl", "summary.json", "manifest.json"} <= {path.name for path in files}
    assert [path.name for path in files if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)] == []
