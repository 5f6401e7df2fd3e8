"""A received run folder: nothing in it leads elsewhere, and every fault in it is reported in a sentence."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refprotofl.core.errors import DataError
from refprotofl.engines.local.store import DiskBlobStore, read_state
from refprotofl.experiment import Experiment
from refprotofl.export import load_trained
from refprotofl.federation import RunResult, run
from refprotofl.records.manifest import read_manifest, signed
from refprotofl.records.verify import first_difference, verify_run

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Somebody's own files, which have the names of ours."""
    folder = tmp_path / "precious"
    folder.mkdir(mode=0o755)
    for name in ("thesis.tex", "000007-1.safetensors", "server-9.safetensors", ".x.1.part"):
        (folder / name).write_text("years of work")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def uses(folder: Path, tiny: Callable[..., Experiment]) -> list[Callable[[], object]]:
    return [
        lambda: run(tiny(), out=folder, resume=True),
        lambda: verify_run(folder, None, read_state),
        lambda: load_trained(folder, 0),
    ]


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint/clients", "checkpoint/blobs"])
def test_a_linked_folder_is_refused_and_nothing_is_removed_from_it(
    cut_off: Path, precious: Path, tiny: Callable[..., Experiment], name: str
) -> None:
    (cut_off / name).rename(cut_off / f"{Path(name).name}-moved")
    (cut_off / name).symlink_to(precious)
    before, mode = contents(precious), precious.stat().st_mode
    for use in uses(cut_off, tiny):
        with pytest.raises(DataError, match=f"{name} is a link, which is not followed .* must be a regular folder"):
            use()
    assert contents(precious) == before
    assert precious.stat().st_mode == mode


FILES = [
    "experiment.json",
    "events.jsonl",
    "summary.json",
    ".lock",
    "checkpoint/manifest.json",
    "checkpoint/server-1.safetensors",
    "checkpoint/clients/000000-1.safetensors",
]


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_is_refused_at_once(
    cut_off: Path, tmp_path: Path, tiny: Callable[..., Experiment], name: str, kind: str
) -> None:
    target = tmp_path / "target"
    target.write_text("not yours")
    (cut_off / name).unlink(missing_ok=True)
    (cut_off / name).symlink_to(target) if kind == "link" else os.mkfifo(cut_off / name)
    for use in uses(cut_off, tiny):
        with pytest.raises(DataError, match=rf"{name} is a {kind}, which is not followed"):
            use()
    assert target.read_text() == "not yours"


def test_the_path_to_a_run_folder_may_be_a_link(
    cut_off: Path, tmp_path: Path, tiny: Callable[..., Experiment], undisturbed: RunResult
) -> None:
    (tmp_path / "link").symlink_to(cut_off)
    finished = run(tiny(), out=tmp_path / "link", resume=True)
    assert finished.summary["state_digest"] == undisturbed.summary["state_digest"]


def test_only_files_of_our_own_form_are_removed(cut_off: Path, tiny: Callable[..., Experiment]) -> None:
    checkpoint = cut_off / "checkpoint"
    strange = [checkpoint / "clients" / "notes.txt", checkpoint / "server-notes.txt", cut_off / ".keep.part"]
    ours = [checkpoint / "clients" / "000001-9.changes", checkpoint / "server-9.safetensors", cut_off / ".a.1.part"]
    folder = checkpoint / "server-8.safetensors"
    folder.mkdir()
    for path in (*strange, *ours):
        path.write_text("here")
    run(tiny(), out=cut_off, resume=True)
    assert all(path.exists() for path in (*strange, folder))
    assert not any(path.exists() for path in ours)


def change_manifest(folder: Path, change: Change) -> None:
    manifest = read_manifest(folder / "checkpoint")
    change(manifest)
    (folder / "checkpoint" / "manifest.json").write_bytes(signed(manifest))
    (folder / "checkpoint" / "manifest-1.json").unlink()  # so that there is none to fall back to


HOSTILE: dict[str, Change] = {
    "absolute server": lambda plain: plain["server"].update(file="/etc/shadow"),
    "server above": lambda plain: plain["server"].update(file="../server-1.safetensors"),
    "observations above": lambda plain: plain["observed"].update(file="../observed-1.safetensors"),
    "observations in another's file": lambda plain: plain["observed"].update(file=plain["server"]["file"]),
    "absolute client": lambda plain: plain["clients"]["0"].update(file="/etc/shadow"),
    "client above": lambda plain: plain["clients"]["0"].update(file="../000000-1.safetensors"),
    "no name": lambda plain: plain["clients"]["0"].update(file=None),
    "a client too many": lambda plain: plain["clients"].update({"7": plain["clients"]["0"]}),
    "a client by word": lambda plain: plain["clients"].update(one=plain["clients"]["0"]),
    "clients in a list": lambda plain: plain.update(clients=[]),
    "a round by word": lambda plain: plain["progress"].update(round="one"),
    "no progress": lambda plain: plain.pop("progress"),
    "more progress": lambda plain: plain["progress"].pop("seconds"),
    "digest by number": lambda plain: plain.update(state_digest=7),
    "no digest": lambda plain: plain["clients"]["1"].update(digest="short"),
    "events in words": lambda plain: plain.update(events=["round"]),
    "no traffic": lambda plain: plain["progress"]["communication"].clear(),
    "a chain of numbers": lambda plain: plain.update(chain=1),
    "an origin of words": lambda plain: plain.update(origin="here"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_wrong_in_a_signed_manifest_is_a_sentence(
    cut_off: Path, tiny: Callable[..., Experiment], name: str
) -> None:
    change_manifest(cut_off, HOSTILE[name])
    for use in uses(cut_off, tiny)[:2]:
        with pytest.raises(DataError, match="manifest"):
            use()


@pytest.mark.parametrize("text", ["[]", "7", "[" * 100_000, '{"event": 1}', '{"event": "round", "round": "1"}'])
def test_events_of_another_kind_are_a_sentence(cut_off: Path, tiny: Callable[..., Experiment], text: str) -> None:
    path = cut_off / "events.jsonl"
    path.write_text(f"{text}\n{path.read_text()}")
    for use in (*uses(cut_off, tiny)[:2], lambda: first_difference(cut_off, cut_off)):
        with pytest.raises(DataError, match=r"events\.jsonl (has a damaged line|does not belong)"):
            use()


def test_a_round_of_another_kind_is_a_sentence(cut_off: Path) -> None:
    path = cut_off / "events.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[-1]["messages"] = ["none"]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(DataError, match=r"events\.jsonl: a round's messages is invalid"):
        first_difference(cut_off, cut_off)


@pytest.mark.parametrize("name", ["experiment.json", "summary.json", "checkpoint/manifest.json"])
def test_json_that_is_nested_too_deeply_is_a_sentence(
    finished_copy: Path, tiny: Callable[..., Experiment], name: str
) -> None:
    (finished_copy / name).write_text("[" * 100_000)
    for kept in (finished_copy / "checkpoint").glob("manifest-*"):
        kept.unlink()
    with pytest.raises(DataError, match="is damaged"):
        run(tiny(), out=finished_copy, resume=True)


def test_a_blob_store_opens_nothing_but_digests(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "blobs" / ("a" * 64))
    for name in ("../pipe", str(tmp_path / "pipe"), "a" * 64, ""):
        assert DiskBlobStore(tmp_path).get(name) is None
