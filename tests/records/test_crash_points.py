"""A process may die before or after anything it does to the disk: resumed, the run ends as if nothing had happened."""

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Tried

from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, RunResult, run

# What depends on the clock, and on when the process began: how long coordinates go unsent is counted from there.
TIMES = ("seconds", "spent", "chain")


class Death(BaseException):
    """The process is gone."""


class Mortal:
    """Counts the deeds that reach the disk. At the last one the process dies, and does nothing any more."""

    def __init__(self, last: int | None = None, completes_it: bool = False) -> None:
        self.deeds = 0
        self._last = last
        self._completes_it = completes_it
        self._dead = False
        self._synced: dict[int, int] = {}  # bytes of each file that a power cut leaves

    def do(self, deed: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self._dead:
            raise Death
        self.deeds += 1
        if self.deeds == self._last:
            self._dead = True
            if self._completes_it:
                deed(*arguments, **options)
            elif deed == self.sync:
                self.tear(*arguments)
            raise Death
        return deed(*arguments, **options)

    def find(self, folder: Path) -> None:
        """Take the files that exist at the start as being on the disk."""
        found = [path.stat() for path in folder.rglob("*") if path.is_file()]
        self._synced |= {one.st_ino: one.st_size for one in found}

    def sync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self._synced[found.st_ino] = found.st_size

    def tear(self, descriptor: int) -> None:
        """Lose half of what was written since the last sync."""
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            before = self._synced.get(found.st_ino, 0)
            os.ftruncate(descriptor, (before + found.st_size) // 2 if found.st_size > before else found.st_size)

    @contextmanager
    def life(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)  # what it leaves is not overwritten by the process after it
            patch.setattr(os, "fsync", lambda descriptor: self.do(self.sync, descriptor))
            for name in ("replace", "unlink", "mkdir"):
                patch.setattr(Path, name, self._counted(getattr(Path, name)))
            yield

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: Path, *arguments: Any, **options: Any) -> Any:
            if not self._dead and not path.exists() and "missing_ok" in options:
                return None  # no deed: there is nothing to remove
            return self.do(real, path, *arguments, **options)

        return counted


def live(mortal: Mortal, experiment: Experiment, out: Path, workers: int = 1) -> RunResult | None:
    """The finished run, or nothing if the process died before."""
    mortal.find(out)
    try:
        with mortal.life():
            return run(experiment, out=out, resume=True, workers=workers)
    except Death:
        return None


def lasting(summary: Mapping[str, Any]) -> dict[str, Any]:
    """All but times, and the chain over them."""
    return {key: value for key, value in summary.items() if key not in TIMES}


def rounds_reported(folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    return [lasting(event) for event in events if event["event"] == "round"]


def rounds_committed(folder: Path) -> int:
    path = folder / "checkpoint" / "manifest.json"
    return int(json.loads(path.read_text())["progress"]["round"]) if path.exists() else 0


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def assert_the_same(found: Path, expected: Path) -> None:
    here, there = (json.loads((folder / "summary.json").read_text()) for folder in (found, expected))
    assert lasting(here) == lasting(there)  # the state digest and the ledger's totals among it
    assert [event["round"] for event in rounds_reported(found)] == [1, 2]
    assert rounds_reported(found) == rounds_reported(expected)
    assert files(found) == files(expected)


def count_deeds(experiment: Experiment, out: Path, workers: int = 1) -> int:
    mortal = Mortal()
    assert live(mortal, experiment, out, workers) is not None
    return mortal.deeds


@pytest.mark.parametrize("completes_it", [False, True], ids=["before", "after"])
def test_death_at_any_deed_changes_nothing(
    tiny: Callable[..., Experiment], undisturbed: RunResult, tmp_path: Path, tried: Tried, completes_it: bool
) -> None:
    deeds = count_deeds(tiny(), tmp_path / "counted")
    assert deeds > 30  # two rounds of four files each, and what is around them
    for last in range(1, deeds + 1):
        out = tmp_path / str(last)
        assert live(Mortal(last, completes_it), tiny(), out) is None
        assert len(rounds_reported(out)) <= rounds_committed(out)  # a round is reported when it is safe, not before
        run(tiny(), out=out, resume=True)
        try:
            assert_the_same(out, undisturbed.folder)
        except AssertionError as problem:
            raise AssertionError(f"after a death at deed {last} of {deeds}") from problem
    tried("deaths at a deed on the disk", deeds)


@pytest.mark.skipif(os.environ.get("REFPROTOFL_FAULTS") != "full", reason="many starts of worker processes")
def test_death_at_any_deed_of_a_run_in_workers_changes_nothing(
    tiny: Callable[..., Experiment], undisturbed: RunResult, tmp_path: Path, tried: Tried
) -> None:
    """Death of the process that the workers belong to."""
    deeds = count_deeds(tiny(), tmp_path / "counted", workers=2)
    for last in range(1, deeds + 1):
        out = tmp_path / str(last)
        assert live(Mortal(last), tiny(), out, workers=2) is None
        run(tiny(), out=out, resume=True, workers=2)
        assert_the_same(out, undisturbed.folder)
    tried("deaths at a deed of a run in workers", deeds)


def test_a_run_may_die_again_and_again(tiny: Callable[..., Experiment], undisturbed: RunResult, tmp_path: Path) -> None:
    out, lives, done = tmp_path / "run", 0, None
    while done is None:
        lives += 1
        done = live(Mortal(7 + 3 * lives, completes_it=lives % 2 == 0), tiny(), out)
    assert lives > 5
    assert_the_same(out, undisturbed.folder)


def test_a_committed_round_is_not_trained_again(cut_off: Path, tiny: Callable[..., Experiment]) -> None:
    first = rounds_reported(cut_off)
    manifest = json.loads((cut_off / "checkpoint" / "manifest.json").read_text())
    seen: list[int] = []

    class Listener(Callback):
        def on_message(self, direction: str, phase: str, client: int, round: int, data: bytes, purpose: str) -> None:
            seen.append(round)

    finished = run(tiny(), out=cut_off, resume=True, callback=Listener())
    assert manifest["progress"]["round"] == 1
    assert set(seen) == {2}
    assert rounds_reported(cut_off)[:1] == first
    assert finished.summary["seconds"]["total"] > manifest["progress"]["seconds"]["total"]
