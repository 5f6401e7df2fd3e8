"""A power cut at any moment: what was not synced is gone or torn, and the run resumes to the same end.

Two disks, as far apart as the rules allow. The strict one forgets every name whose folder was not synced; the other one
keeps all names, and of contents that were not synced the first half. Every fifth moment by default; each one with
REFPROTOFL_FAULTS=full, which `make test-faults` sets.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Tried

from refprotofl.experiment import Experiment
from refprotofl.federation import Callback, RunResult, run

EVERY = 1 if os.environ.get("REFPROTOFL_FAULTS") == "full" else 5

Tree = dict[str, bytes | None]  # by path below the root; None is a folder


@dataclass
class Moment:
    """The disk after a power cut, and the number of rounds reported to the user by then."""

    reported: int
    strict: Tree
    lazy: Tree


@dataclass
class Disk(Callback):
    """Watches one folder tree: what of it has been synced."""

    root: Path
    moments: list[Moment] = field(default_factory=list)
    reported: int = 0
    _contents: dict[int, bytes] = field(default_factory=dict)  # synced, by inode
    _names: dict[str, dict[str, int | bytes | None]] = field(default_factory=dict)  # synced, by folder

    def on_round(self, event: dict[str, Any], accuracy: dict[str, Any] | None) -> None:
        self.reported += 1

    def sync(self, descriptor: int) -> None:
        found, path = os.fstat(descriptor), os.readlink(f"/proc/self/fd/{descriptor}")
        if stat.S_ISDIR(found.st_mode):
            self._names[path] = {
                entry.name: None if entry.is_dir() else entry.stat().st_ino for entry in os.scandir(path)
            }
        else:
            self._contents[found.st_ino] = Path(path).read_bytes()
        self.note()

    def forget(self, path: Path) -> None:
        """The file loses its name, and its inode may be used again; a synced name still leads to what it was."""
        inode = path.stat().st_ino
        content = self._contents.pop(inode, b"")
        for names in self._names.values():
            for name, target in names.items():
                if target == inode:
                    names[name] = content

    def note(self) -> None:
        self.moments.append(Moment(self.reported, self._strict(), self._lazy()))

    def _strict(self) -> Tree:
        tree: Tree = {}

        def visit(folder: Path) -> None:
            for name, target in self._names.get(str(folder), {}).items():
                key = str((folder / name).relative_to(self.root))
                tree[key] = self._contents.get(target, b"") if isinstance(target, int) else target
                if target is None:
                    visit(folder / name)

        visit(self.root)
        return tree

    def _lazy(self) -> Tree:
        tree: Tree = {}
        for path in sorted(self.root.rglob("*")):
            data = None if path.is_dir() else path.read_bytes()
            if data is not None:
                synced = self._contents.get(path.stat().st_ino)
                data = data[: len(data) // 2] if synced is None else synced + data[len(synced) :][: len(data) // 2]
            tree[str(path.relative_to(self.root))] = data
        return tree

    @contextmanager
    def watched(self) -> Iterator[None]:
        replace, unlink = Path.replace, Path.unlink

        def replaced(path: Path, target: Path) -> None:
            if Path(target).exists():
                self.forget(Path(target))
            replace(path, target)
            self.note()

        def unlinked(path: Path, missing_ok: bool = False) -> None:
            if path.exists():
                self.forget(path)
                unlink(path)
                self.note()
            else:
                unlink(path, missing_ok=missing_ok)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", self.sync)
            patch.setattr(Path, "replace", replaced)
            patch.setattr(Path, "unlink", unlinked)
            yield


def build(tree: Tree, root: Path) -> Path:
    root.mkdir()
    for name, data in tree.items():
        path = root / name
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.write_bytes(data)
    return root


@pytest.fixture(scope="module")
def moments(tiny: Callable[..., Experiment], tmp_path_factory: pytest.TempPathFactory) -> list[Moment]:
    disk = Disk(tmp_path_factory.mktemp("disk"))
    with disk.watched():
        run(tiny(), out=disk.root / "run", callback=disk)
    assert len(disk.moments) > 40
    assert disk.moments[-1].reported == 2
    return disk.moments


def rounds_committed(folder: Path) -> int:
    path = folder / "checkpoint" / "manifest.json"
    return int(json.loads(path.read_text())["progress"]["round"]) if path.exists() else 0


@pytest.mark.parametrize("kind", ["strict", "lazy"])
def test_a_power_cut_at_any_moment_changes_nothing(
    moments: list[Moment],
    tiny: Callable[..., Experiment],
    undisturbed: RunResult,
    tmp_path: Path,
    tried: Tried,
    kind: str,
) -> None:
    chosen = list(enumerate(moments))[::EVERY]
    for number, moment in chosen:
        left = build(getattr(moment, kind), tmp_path / str(number))
        assert rounds_committed(left / "run") >= moment.reported, f"moment {number}: a round that was reported is lost"
        finished = run(tiny(), out=left / "run", resume=True)
        assert finished.summary["state_digest"] == undisturbed.summary["state_digest"], f"moment {number}"
        assert finished.summary["communication"] == undisturbed.summary["communication"], f"moment {number}"
    tried("power cuts", len(chosen))
