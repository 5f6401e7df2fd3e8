"""The clients' private states on disk: any process continues where another stopped, and memory does not grow."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refprotofl.core.errors import DataError, RunError
from refprotofl.core.state import State, digest_state
from refprotofl.engines.engine import Record, Request
from refprotofl.engines.local.engine import LocalEngine
from refprotofl.engines.local.host import ClientHost, InProcess
from refprotofl.engines.local.store import ClientStore, Location, read_state
from refprotofl.methods.base.client import Client
from refprotofl.methods.base.schema import ValidatedMessage
from refprotofl.records.state_files import _TYPES, load_state, map_state, save_state
from refprotofl.wire import Message, encode

EXPERIMENT = SimpleNamespace(value_code="plain", compress=SimpleNamespace(name="none"))
CONTEXT = SimpleNamespace(experiment=EXPERIMENT, model=None, parts=(), samples=None, options=None, compressor=None)
INITIAL: State = {"backbone.weight": torch.arange(100.0), "note": "first"}


def store(folder: Path) -> ClientStore:
    (folder / "clients").mkdir(exist_ok=True)
    return ClientStore(folder, lambda client: INITIAL)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "clients").iterdir())


def test_a_client_that_never_changed_has_its_initial_state_and_no_file(tmp_path: Path) -> None:
    assert store(tmp_path).load(0, Location()).state is INITIAL
    assert names(tmp_path) == []


def test_what_training_leaves_is_one_file_with_its_digest(tmp_path: Path) -> None:
    trained: State = {"backbone.weight": torch.arange(100.0) + 1, "trained": torch.zeros(3), "round": 1}
    location = store(tmp_path).save(0, 7, trained, store(tmp_path).load(0, Location()), Location())
    assert names(tmp_path) == [location.file] == ["000000-7.safetensors"]
    assert (
        location.digest
        == digest_state(trained)
        == digest_state(load_state(tmp_path / "clients" / location.file, location.digest))
    )
    assert digest_state(store(tmp_path).load(0, location).state) == digest_state(trained)


def test_a_small_change_does_not_write_the_backbone_again(tmp_path: Path) -> None:
    place = store(tmp_path)
    loaded = place.load(0, Location())
    location = place.save(0, 1, {**loaded.state, "adapter": torch.ones(5), "note": "second"}, loaded, Location())
    assert names(tmp_path) == ["000000-1.changes"]
    assert (tmp_path / "clients" / location.changes).stat().st_size < 400  # the backbone alone has 400 bytes
    again = store(tmp_path).load(0, location).state
    assert again["note"] == "second"
    assert again["adapter"].tolist() == [1.0] * 5  # type: ignore[union-attr]
    assert again["backbone.weight"] is INITIAL["backbone.weight"]


def test_changes_to_changes_build_on_the_same_file_and_what_was_removed_stays_away(tmp_path: Path) -> None:
    place, location = store(tmp_path), Location()
    loaded = place.load(0, location)
    location = place.save(0, 1, {**loaded.state, "adapter": torch.ones(5)}, loaded, location)
    loaded = place.load(0, location)
    shrunk = {name: value for name, value in loaded.state.items() if name != "note"}
    location = place.save(0, 1, {**shrunk, "more": 3}, loaded, location)
    assert location.file == ""
    state = store(tmp_path).load(0, location).state
    assert sorted(state) == ["adapter", "backbone.weight", "more"]
    merged = store(tmp_path).merge(0, 1, location)
    assert (merged.changes, merged.digest) == ("", digest_state(state))
    assert digest_state(store(tmp_path).load(0, merged).state) == merged.digest


def test_a_file_that_may_be_mapped_is_never_replaced(tmp_path: Path) -> None:
    place, location = store(tmp_path), Location()
    for step in range(5):
        loaded = place.load(0, location)
        before = {
            path: path.stat().st_ino
            for path in (tmp_path / "clients").iterdir()
            if path.name in (location.file, location.changes)
        }
        large = {"backbone.weight": torch.arange(100.0) + step} if step % 2 else {}
        location = place.save(0, 1, {**loaded.state, "step": step, **large}, loaded, location)
        assert all(path.stat().st_ino == number for path, number in before.items())


STEPS = st.lists(st.sampled_from(["train", "change", "remove", "merge"]), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_any_history_gives_the_state_that_memory_would_have(tmp_path: Path, steps: list[str]) -> None:
    location, memory = Location(), dict(INITIAL)
    for number, step in enumerate(steps):
        place = store(tmp_path)
        if step == "merge":
            location = place.merge(0, number, location)
            continue
        loaded = place.load(0, location)
        state = dict(loaded.state)
        changes: dict[str, State] = {
            "train": {"backbone.weight": torch.full((100,), float(number)), "trained": torch.ones(9) * number},
            "change": {"adapter": torch.full((4,), float(number)), "count": number},
            "remove": {},
        }
        change = changes[step]
        gone = {"adapter", "count"} if step == "remove" else set()
        state = {name: value for name, value in {**state, **change}.items() if name not in gone}
        memory = {name: value for name, value in {**memory, **change}.items() if name not in gone}
        location = place.save(0, number, state, loaded, location)
    assert digest_state(store(tmp_path).load(0, location).state) == digest_state(memory)


def test_a_state_is_mapped_and_not_read(tmp_path: Path) -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("looks into /proc")

    def private_megabytes() -> int:
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["RssAnon"].split()[0]) // 1024

    weights = torch.ones(25_000_000)  # 100 MB
    place = store(tmp_path)
    loaded = place.load(0, Location())
    location = place.save(0, 1, {"backbone.weight": weights * 2}, loaded, Location())
    before = private_megabytes()
    states = [store(tmp_path).load(0, location).state for _ in range(10)]
    assert all(state["backbone.weight"].max() == 2 for state in states)  # type: ignore[union-attr]
    assert private_megabytes() - before < 100


def test_a_file_of_an_earlier_process_is_checked_before_it_is_used(tmp_path: Path) -> None:
    trained: State = {"backbone.weight": torch.arange(100.0) + 1}
    location = store(tmp_path).save(0, 1, trained, store(tmp_path).load(0, Location()), Location())
    found = Location.recorded({"file": location.file, "digest": location.digest})
    assert digest_state(store(tmp_path).load(0, found).state) == location.digest
    path = tmp_path / "clients" / location.file
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(DataError, match=r"000000-1\.safetensors is truncated or was changed"):
        store(tmp_path).load(0, found)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda path: path.unlink(), r"cannot be read: "),
        (lambda path: path.write_bytes(b"no state"), "is truncated or was changed: "),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "is truncated or was changed: "),
    ],
)
def test_a_file_that_vanished_or_broke_under_way_is_named(tmp_path: Path, spoil: object, complaint: str) -> None:
    trained: State = {"backbone.weight": torch.arange(100.0) + 1}
    location = store(tmp_path).save(0, 1, trained, store(tmp_path).load(0, Location()), Location())
    spoil(tmp_path / "clients" / location.file)  # type: ignore[operator]
    with pytest.raises(DataError, match=rf"000000-1\.safetensors {complaint}"):
        store(tmp_path).load(0, location)


class Fixed(Client):
    """Does to its state what the verb says."""

    def answer(self, verb: str, round: int, message: Message) -> Message:
        if verb == "train":
            self.state["backbone.weight"] = torch.ones(100)
        self.state["adapter"] = torch.full((5,), float(round))
        return {}

    def train(self, round: int, message: ValidatedMessage) -> Message:
        return {}

    evaluate = train


def engine(folder: Path, records: dict[int, Record] | None = None) -> LocalEngine:
    host = ClientHost(Fixed, lambda number: CONTEXT, store(folder))  # type: ignore[arg-type, return-value]
    return LocalEngine(lambda: InProcess(host), folder, records or {})


def ask(place: LocalEngine, client: int, verb: str, round: int, keeps: bool = True) -> None:
    (result,) = place.map([Request(client, verb, round, encode({}), keeps)], None)
    assert (result.code, result.trouble) == (None, None)


def test_what_moved_is_settled_into_one_file_each_and_reported_with_its_digest(tmp_path: Path) -> None:
    place = engine(tmp_path)
    ask(place, 0, "greet", 1)
    ask(place, 1, "train", 1)
    assert names(tmp_path) == ["000000-1.changes", "000001-1.safetensors"]
    records = place.settle(1)
    assert {client: record["file"] for client, record in records.items()} == {
        0: "000000-1.safetensors", 1: "000001-1.safetensors"
    }  # fmt: skip
    assert all(digest_state(read_state(tmp_path, record)) == record["digest"] for record in records.values())
    assert place.settle(1) == records  # it was not committed
    place.committed(1, 1)
    assert names(tmp_path) == ["000000-1.safetensors", "000001-1.safetensors"]
    assert place.settle(2) == {}


def test_the_last_committed_round_stays_until_the_next_one_is(tmp_path: Path) -> None:
    place = engine(tmp_path)
    ask(place, 0, "train", 1)
    first = place.settle(1)
    place.committed(1, 1)
    ask(place, 0, "train", 2)
    second = place.settle(2)
    assert names(tmp_path) == ["000000-1.safetensors", "000000-2.safetensors"]
    assert digest_state(read_state(tmp_path, first[0])) == first[0]["digest"]
    again = engine(tmp_path, first)  # as if the manifest had never been written
    assert names(tmp_path) == ["000000-1.safetensors"]
    ask(again, 0, "train", 2)
    assert again.settle(2) == second
    again.committed(2, 2)
    assert names(tmp_path) == ["000000-2.safetensors"]


def test_a_state_that_is_not_to_be_kept_or_whose_answer_was_not_taken_leaves_no_trace(tmp_path: Path) -> None:
    place = engine(tmp_path)
    asked = (Request(client, "train", 1, encode({}), keeps=client > 0) for client in range(2))
    results = place.map(asked, None)
    assert next(results).code is None
    assert place.settle(1) == {}
    place.committed(1, 1)
    assert names(tmp_path) == []


def test_states_are_safe_from_a_power_cut_when_they_are_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = engine(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    ask(place, 0, "train", 1)
    assert synced == []
    (record,) = place.settle(1).values()
    folder = tmp_path / "clients"
    assert synced == [(folder / record["file"]).stat().st_ino, folder.stat().st_ino]


def test_a_state_that_cannot_be_settled_stops_with_the_reason(tmp_path: Path) -> None:
    place = engine(tmp_path)
    ask(place, 0, "greet", 1)
    (tmp_path / "clients" / "000000-1.changes").unlink()
    with pytest.raises(DataError, match=r"Round 1, client 0: .*000000-1\.changes cannot be read"):
        place.settle(1)


def test_a_client_that_takes_longer_than_the_deadline_stops_the_run_and_its_state_stays(tmp_path: Path) -> None:
    place = engine(tmp_path)
    with pytest.raises(RunError, match=r"Round 1, client 0: train took longer than deadline = 1e-09 s.*--resume"):
        list(place.map([Request(0, "train", 1, encode({}))], 1e-9))
    assert place.settle(1) == {}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5),
        st.tuples(st.sampled_from(list(_TYPES.values())), st.lists(st.integers(0, 4), max_size=3)),
        max_size=5,
    )
)
def test_what_safetensors_wrote_is_mapped_as_it_was(
    tmp_path: Path, entries: dict[str, tuple[torch.dtype, list[int]]]
) -> None:
    generator = torch.Generator().manual_seed(0)
    state: State = {
        name: torch.randint(0, 2, shape, generator=generator).to(dtype) for name, (dtype, shape) in entries.items()
    }
    save_state(tmp_path / "state", state, {"note": "extra"})
    mapped, notes = map_state(tmp_path / "state")
    assert notes == {"note": "extra"}
    assert digest_state(mapped) == digest_state(state)
    assert mapped.keys() == state.keys()
