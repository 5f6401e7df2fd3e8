"""The clients' private states on disk: any process goes on where another left off, and memory does not grow."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refprotofl.basics.state import Kept, State, digest_state
from refprotofl.engines.host import SETTLE, Result, Task
from refprotofl.engines.whereabouts import Whereabouts
from refprotofl.errors import DataError, RunError
from refprotofl.records.clients import ClientStore
from refprotofl.records.states import _TYPES, load_state, map_state, save_state

INITIAL: State = {"backbone.weight": torch.arange(100.0), "note": "first"}


def store(folder: Path) -> ClientStore:
    return ClientStore(folder, [INITIAL, INITIAL])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_client_that_never_changed_has_its_initial_state_and_no_file(tmp_path: Path) -> None:
    assert store(tmp_path).load(0, Kept()).state is INITIAL
    assert names(tmp_path) == []


def test_what_training_leaves_is_one_file_with_its_digest(tmp_path: Path) -> None:
    trained: State = {"backbone.weight": torch.arange(100.0) + 1, "trained": torch.zeros(3), "round": 1}
    kept = store(tmp_path).keep(0, 7, trained, store(tmp_path).load(0, Kept()), Kept())
    assert names(tmp_path) == [kept.file] == ["000000-7.safetensors"]
    assert kept.digest == digest_state(trained) == digest_state(load_state(tmp_path / kept.file, kept.digest))
    assert digest_state(store(tmp_path).load(0, kept).state) == digest_state(trained)


def test_a_small_change_does_not_write_the_backbone_again(tmp_path: Path) -> None:
    place = store(tmp_path)
    held = place.load(0, Kept())
    kept = place.keep(0, 1, {**held.state, "adapter": torch.ones(5), "note": "second"}, held, Kept())
    assert names(tmp_path) == ["000000-1.changes"]
    assert (tmp_path / kept.changes).stat().st_size < 400  # the backbone alone has 400 bytes
    again = store(tmp_path).load(0, kept).state
    assert again["note"] == "second"
    assert again["adapter"].tolist() == [1.0] * 5  # type: ignore[union-attr]
    assert again["backbone.weight"] is INITIAL["backbone.weight"]


def test_changes_to_changes_build_on_the_same_file_and_what_was_removed_stays_away(tmp_path: Path) -> None:
    place, kept = store(tmp_path), Kept()
    held = place.load(0, kept)
    kept = place.keep(0, 1, {**held.state, "adapter": torch.ones(5)}, held, kept)
    held = place.load(0, kept)
    shrunk = {name: value for name, value in held.state.items() if name != "note"}
    kept = place.keep(0, 1, {**shrunk, "more": 3}, held, kept)
    assert kept.file == ""
    state = store(tmp_path).load(0, kept).state
    assert sorted(state) == ["adapter", "backbone.weight", "more"]
    settled = store(tmp_path).settle(0, 1, kept)
    assert (settled.changes, settled.digest) == ("", digest_state(state))
    assert digest_state(store(tmp_path).load(0, settled).state) == settled.digest


def test_a_file_that_may_be_mapped_is_never_replaced(tmp_path: Path) -> None:
    place, kept = store(tmp_path), Kept()
    for step in range(5):
        held = place.load(0, kept)
        before = {path: path.stat().st_ino for path in tmp_path.iterdir() if path.name in (kept.file, kept.changes)}
        large = {"backbone.weight": torch.arange(100.0) + step} if step % 2 else {}
        kept = place.keep(0, 1, {**held.state, "step": step, **large}, held, kept)
        assert all(path.stat().st_ino == number for path, number in before.items())


STEPS = st.lists(st.sampled_from(["train", "change", "remove", "settle"]), max_size=8)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_any_history_gives_the_state_that_memory_would_have(tmp_path: Path, steps: list[str]) -> None:
    kept, memory = Kept(), dict(INITIAL)
    for number, step in enumerate(steps):
        place = store(tmp_path)
        if step == "settle":
            kept = place.settle(0, number, kept)
            continue
        held = place.load(0, kept)
        state = dict(held.state)
        changes: dict[str, State] = {
            "train": {"backbone.weight": torch.full((100,), float(number)), "trained": torch.ones(9) * number},
            "change": {"adapter": torch.full((4,), float(number)), "count": number},
            "remove": {},
        }
        change = changes[step]
        gone = {"adapter", "count"} if step == "remove" else set()
        state = {name: value for name, value in {**state, **change}.items() if name not in gone}
        memory = {name: value for name, value in {**memory, **change}.items() if name not in gone}
        kept = place.keep(0, number, state, held, kept)
    assert digest_state(store(tmp_path).load(0, kept).state) == digest_state(memory)


def test_a_state_is_mapped_and_not_read(tmp_path: Path) -> None:
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("looks into /proc")

    def private_megabytes() -> int:
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["RssAnon"].split()[0]) // 1024

    weights = torch.ones(25_000_000)  # 100 MB
    place = ClientStore(tmp_path, [{"backbone.weight": weights}])
    held = place.load(0, Kept())
    kept = place.keep(0, 1, {"backbone.weight": weights * 2}, held, Kept())
    before = private_megabytes()
    states = [store(tmp_path).load(0, kept).state for _ in range(10)]
    assert all(state["backbone.weight"].max() == 2 for state in states)  # type: ignore[union-attr]
    assert private_megabytes() - before < 100


def test_a_file_of_an_earlier_process_is_checked_before_it_is_used(tmp_path: Path) -> None:
    trained: State = {"backbone.weight": torch.arange(100.0) + 1}
    kept = store(tmp_path).keep(0, 1, trained, store(tmp_path).load(0, Kept()), Kept())
    found = Whereabouts({0: {"file": kept.file, "digest": kept.digest}}).of(0)
    assert digest_state(store(tmp_path).load(0, found).state) == kept.digest
    path = tmp_path / kept.file
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
    kept = store(tmp_path).keep(0, 1, trained, store(tmp_path).load(0, Kept()), Kept())
    spoil(tmp_path / kept.file)  # type: ignore[operator]
    with pytest.raises(DataError, match=rf"000000-1\.safetensors {complaint}"):
        store(tmp_path).load(0, kept)


class Settler:
    """An engine that settles, and remembers whom."""

    def __init__(self, place: ClientStore) -> None:
        self.place, self.tasks, self.forgot = place, list[Task](), 0

    def submit(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1

    def result(self, ticket: int) -> Result:
        task = self.tasks[ticket]
        try:
            return Result(kept=self.place.settle(task.client, task.round, task.kept))
        except DataError as problem:
            return Result(error=str(problem), fatal="DataError")

    def forget(self) -> None:
        self.forgot += 1

    def close(self) -> None: ...


def test_a_commit_settles_who_has_loose_changes_and_names_who_moved(tmp_path: Path) -> None:
    place, whereabouts = store(tmp_path), Whereabouts({})
    held = place.load(0, Kept())
    whereabouts.move(0, place.keep(0, 1, {**held.state, "adapter": torch.ones(5)}, held, Kept()))
    whereabouts.move(1, place.keep(1, 1, {"backbone.weight": torch.ones(100)}, held, Kept()))
    engine = Settler(place)
    written = whereabouts.settle(engine, 1)
    assert [(task.client, task.verb) for task in engine.tasks] == [(0, SETTLE)]
    assert {client: record["file"] for client, record in written.items()} == {
        0: "000000-1.safetensors", 1: "000001-1.safetensors"
    }  # fmt: skip
    assert whereabouts.of(0).changes == ""
    assert whereabouts.settle(engine, 2) == {}
    assert engine.forgot == 2


def test_a_commit_that_cannot_settle_fails_with_the_reason(tmp_path: Path) -> None:
    place, whereabouts = store(tmp_path), Whereabouts({})
    held = place.load(0, Kept())
    whereabouts.move(0, place.keep(0, 1, {**held.state, "adapter": torch.ones(5)}, held, Kept()))
    (tmp_path / whereabouts.of(0).changes).unlink()
    with pytest.raises((DataError, RunError), match=r"Round 1, client 0: .*000000-1\.changes cannot be read"):
        whereabouts.settle(Settler(place), 1)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    save_state(tmp_path / "state", state, {"note": "beside"})
    mapped, notes = map_state(tmp_path / "state")
    assert notes == {"note": "beside"}
    assert digest_state(mapped) == digest_state(state)
    assert mapped.keys() == state.keys()
