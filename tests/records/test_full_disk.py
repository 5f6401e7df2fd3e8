"""A full disk stops the run with a message and damages nothing; once there is space the run resumes."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Tried

from refprotofl.core.errors import RunError
from refprotofl.experiment import Experiment
from refprotofl.federation import RunResult, run


class Disk:
    """Takes a number of syncs, then is full."""

    def __init__(self, room: int) -> None:
        self.room = room

    def sync(self, descriptor: int) -> None:
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= 1


def test_a_disk_that_fills_up_at_any_write(
    tiny: Callable[..., Experiment],
    undisturbed: RunResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tried: Tried,
) -> None:
    enough = Disk(1000)
    monkeypatch.setattr(os, "fsync", enough.sync)
    run(tiny(), out=tmp_path / "counted")
    syncs = 1000 - enough.room
    assert syncs > 20
    for room in range(syncs):
        out = tmp_path / str(room)
        monkeypatch.setattr(os, "fsync", Disk(room).sync)
        with pytest.raises(RunError, match=r"disk is full: cannot write .*--resume"):
            run(tiny(), out=out)
        assert not list(out.rglob("*.part"))
        monkeypatch.setattr(os, "fsync", enough.sync)
        assert run(tiny(), out=out, resume=True).summary["state_digest"] == undisturbed.summary["state_digest"]
    tried("full disks", syncs)
