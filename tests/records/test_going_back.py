"""The last rounds' checkpoints: going back to one by wish, or because the newest is damaged."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from refprotofl.core.errors import DataError, InputError
from refprotofl.core.state import State, digest_state
from refprotofl.engines.local.store import read_state
from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, RunResult, run
from refprotofl.federation.models import known_digests
from refprotofl.records import atomic_files, rollback
from refprotofl.records.folder import read_events
from refprotofl.records.manifest import signed
from refprotofl.records.state_files import save_state
from refprotofl.records.verify import verify_run

ROUNDS = 5


class Notes(Callback):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def on_note(self, note: str) -> None:
        self.sentences.append(note)


@pytest.fixture(scope="module")
def long(tiny: Callable[..., Experiment], tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(tiny(rounds=ROUNDS), out=tmp_path_factory.mktemp("runs") / "long")


@pytest.fixture
def copy(long: RunResult, tmp_path: Path) -> Path:
    return Path(shutil.copytree(long.folder, tmp_path / "run"))


def rounds(folder: Path, name: str = "events.jsonl") -> list[int]:
    events = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return [event["round"] for event in events if event["event"] == "round"]


def check(folder: Path, long: RunResult) -> None:
    """Assert that the run is whole, has each round once, and is what it would have been."""
    experiment = Experiment.parse(long.summary["experiment"])
    assert verify_run(folder, known_digests(experiment, None), read_state).round == ROUNDS
    assert rounds(folder) == list(range(1, ROUNDS + 1))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["state_digest"] == long.summary["state_digest"]
    assert summary["communication"] == long.summary["communication"]
    assert summary["steps"] == long.summary["steps"]


def masks(folder: Path) -> list[dict[str, object]]:
    return [event["masks"] for event in read_events(folder) if event["event"] == "round"]


def test_ages_of_unsent_coordinates_are_counted_on(
    copy: Path, long: RunResult, tiny: Callable[..., Experiment]
) -> None:
    run(tiny(rounds=ROUNDS), out=copy, resume=True, from_round=3)
    assert masks(copy) == masks(long.folder)
    assert {mask["since"] for mask in masks(copy)} == {1}


def test_a_checkpoint_without_ages_says_since_when_they_are_counted(
    copy: Path, tiny: Callable[..., Experiment]
) -> None:
    kept = copy / "checkpoint" / "manifest-3.json"
    older = json.loads(kept.read_text())
    del older["sha256"], older["observed"]
    kept.write_bytes(signed(older))
    run(tiny(rounds=ROUNDS), out=copy, resume=True, from_round=3)
    assert [mask["since"] for mask in masks(copy)] == [1, 1, 1, 4, 4]


def test_ages_of_another_model_are_refused(copy: Path, tiny: Callable[..., Experiment]) -> None:
    checkpoint = copy / "checkpoint"
    manifest = json.loads((checkpoint / "manifest-3.json").read_text())
    other: State = {"last": torch.zeros(3, dtype=torch.int32), "since": 1}
    save_state(checkpoint / "observed-3.safetensors", other)
    del manifest["sha256"]
    manifest["observed"]["digest"] = digest_state(other)
    (checkpoint / "manifest-3.json").write_bytes(signed(manifest))
    with pytest.raises(DataError, match="does not fit the experiment"):
        run(tiny(rounds=ROUNDS), out=copy, resume=True, from_round=3)


@pytest.mark.parametrize("to", [3, 4])
def test_a_run_goes_back_and_comes_to_the_same_end(
    copy: Path, long: RunResult, tiny: Callable[..., Experiment], to: int
) -> None:
    notes = Notes()
    run(tiny(rounds=ROUNDS), out=copy, resume=True, from_round=to, callback=notes)
    check(copy, long)
    assert rounds(copy, "events.1.jsonl") == list(range(to + 1, ROUNDS + 1))
    found = [event for event in read_events(copy) if event["event"] == "rollback"]
    assert [(event["round"], event["before"], event["events"]) for event in found] == [(to, ROUNDS, "events.1.jsonl")]
    assert f"after round {to}, not {ROUNDS}" in notes.sentences[-1]


def test_going_back_twice_leaves_both_pasts(copy: Path, long: RunResult, tiny: Callable[..., Experiment]) -> None:
    for to in (4, 3):
        run(tiny(rounds=ROUNDS), out=copy, resume=True, from_round=to)
    check(copy, long)
    assert (rounds(copy, "events.1.jsonl"), rounds(copy, "events.2.jsonl")) == ([5], [4, 5])


def test_the_newest_round_is_nothing_to_go_back_to(
    copy: Path, long: RunResult, tiny: Callable[..., Experiment]
) -> None:
    notes = Notes()
    run(tiny(rounds=ROUNDS), out=copy, resume=True, from_round=ROUNDS, callback=notes)
    check(copy, long)
    assert not (copy / "events.1.jsonl").exists()
    assert notes.sentences == []


@pytest.mark.parametrize("to", [1, 2, 6])
def test_a_round_that_is_not_kept_is_refused(copy: Path, tiny: Callable[..., Experiment], to: int) -> None:
    before = (copy / "events.jsonl").read_bytes()
    with pytest.raises(InputError, match=rf"--from-round {to}: .*kept are 3, 4, 5\."):
        run(tiny(rounds=ROUNDS), out=copy, resume=True, from_round=to)
    assert (copy / "events.jsonl").read_bytes() == before


def test_a_round_that_was_never_committed_is_none_to_go_to(copy: Path, tiny: Callable[..., Experiment]) -> None:
    """A crash may come between a round's own manifest and the one that makes it exist."""
    checkpoint = copy / "checkpoint"
    shutil.copy(checkpoint / "manifest-4.json", checkpoint / "manifest.json")
    with pytest.raises(InputError, match=r"--from-round 5: .*kept are 3, 4\."):
        run(tiny(rounds=ROUNDS), out=copy, resume=True, from_round=5)


def test_where_there_is_no_run_there_is_no_going_back(tmp_path: Path, tiny: Callable[..., Experiment]) -> None:
    with pytest.raises(InputError, match="--from-round 1 goes back in a run, but there is none"):
        run(tiny(), out=tmp_path / "none", resume=True, from_round=1)


def test_a_crash_while_going_back_loses_nothing(
    copy: Path, long: RunResult, tiny: Callable[..., Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the manifest, and right after it."""

    class Death(BaseException):
        pass

    real = atomic_files.write_whole

    def dies(path: Path, data: bytes, *, after: bool) -> None:
        if path.name == "manifest.json":
            if after:
                real(path, data)
            raise Death
        real(path, data)

    for after in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(rollback, "write_whole", lambda path, data, after=after: dies(path, data, after=after))
            with pytest.raises(Death):
                run(tiny(rounds=ROUNDS), out=copy, resume=True, from_round=3)
    run(tiny(rounds=ROUNDS), out=copy, resume=True)
    check(copy, long)
    assert rounds(copy, "events.1.jsonl") == [4, 5]
    assert not (copy / "events.2.jsonl").exists()
    assert [event["round"] for event in read_events(copy) if event["event"] == "rollback"] == [3]


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "server": lambda folder: spoil(folder / "server-5.safetensors"),
    "no server": lambda folder: (folder / "server-5.safetensors").unlink(),
    "client": lambda folder: spoil(folder / "clients" / "000001-5.safetensors"),
    "no client": lambda folder: (folder / "clients" / "000000-5.safetensors").unlink(),
    "a short client": lambda folder: (folder / "clients" / "000000-5.safetensors").write_bytes(b"short"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    copy: Path, long: RunResult, tiny: Callable[..., Experiment], damage: str
) -> None:
    DAMAGE[damage](copy / "checkpoint")
    (copy / "summary.json").unlink()
    notes = Notes()
    run(tiny(rounds=ROUNDS), out=copy, resume=True, callback=notes)
    check(copy, long)
    assert rounds(copy, "events.1.jsonl") == [5]
    (going_back,) = [event for event in read_events(copy) if event["event"] == "rollback"]
    assert (going_back["round"], going_back["before"]) == (4, 5)
    assert "safetensors" in going_back["reason"]
    assert "after round 4, not 5" in notes.sentences[-1]


def test_two_damaged_checkpoints_fall_back_to_the_third(
    copy: Path, long: RunResult, tiny: Callable[..., Experiment]
) -> None:
    spoil(copy / "checkpoint" / "server-5.safetensors")
    spoil(copy / "checkpoint" / "clients" / "000000-4.safetensors")
    (copy / "summary.json").unlink()
    run(tiny(rounds=ROUNDS), out=copy, resume=True)
    check(copy, long)
    assert rounds(copy, "events.1.jsonl") == [4, 5]


@pytest.mark.parametrize("gone", [False, True])
def test_a_damaged_manifest_is_replaced_by_its_copy(
    copy: Path, long: RunResult, tiny: Callable[..., Experiment], gone: bool
) -> None:
    path = copy / "checkpoint" / "manifest.json"
    path.unlink() if gone else path.write_text("{}")
    (copy / "summary.json").unlink()
    notes = Notes()
    run(tiny(rounds=ROUNDS), out=copy, resume=True, callback=notes)
    check(copy, long)
    assert not (copy / "events.1.jsonl").exists()
    assert "manifest-5.json, is whole and was put in its place" in notes.sentences[-1]


def test_without_any_whole_checkpoint_the_newest_ones_damage_is_reported(
    copy: Path, tiny: Callable[..., Experiment]
) -> None:
    for round in (3, 4, 5):
        spoil(copy / "checkpoint" / f"server-{round}.safetensors")
    (copy / "summary.json").unlink()
    before = (copy / "events.jsonl").read_bytes()
    with pytest.raises(DataError, match=r"server-5\.safetensors is truncated or was changed"):
        run(tiny(rounds=ROUNDS), out=copy, resume=True)
    assert (copy / "events.jsonl").read_bytes() == before


def test_committed_rounds_without_a_checkpoint_are_not_trained_again(
    copy: Path, tiny: Callable[..., Experiment]
) -> None:
    shutil.rmtree(copy / "checkpoint")
    (copy / "summary.json").unlink()
    before = (copy / "events.jsonl").read_bytes()
    with pytest.raises(DataError, match=r"manifest\.json is missing, but .*events\.jsonl has committed rounds"):
        run(tiny(rounds=ROUNDS), out=copy, resume=True)
    assert (copy / "events.jsonl").read_bytes() == before


def test_the_checkpoint_of_another_run_of_the_same_experiment_is_refused(
    copy: Path, tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    other = run(tiny(rounds=ROUNDS), out=tmp_path / "other").folder
    (copy / "summary.json").unlink()
    shutil.rmtree(copy / "checkpoint")
    shutil.copytree(other / "checkpoint", copy / "checkpoint")
    before = (copy / "events.jsonl").read_bytes()
    with pytest.raises(DataError, match=r"events\.jsonl (does not belong|is shorter)"):
        run(tiny(rounds=ROUNDS), out=copy, resume=True)
    assert (copy / "events.jsonl").read_bytes() == before


def test_the_checkpoint_of_another_experiment_is_refused(
    copy: Path, tiny: Callable[..., Experiment], tmp_path: Path
) -> None:
    other = run(tiny(rounds=ROUNDS, seed=7), out=tmp_path / "other").folder
    (copy / "summary.json").unlink()
    shutil.rmtree(copy / "checkpoint")
    shutil.copytree(other / "checkpoint", copy / "checkpoint")
    with pytest.raises(DataError, match=r"experiment\.json is not the experiment of the manifest"):
        run(tiny(rounds=ROUNDS), out=copy, resume=True)
