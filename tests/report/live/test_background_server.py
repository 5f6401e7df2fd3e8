"""The background server of a run does not change the run, and ends with it."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.tiny import tiny_keys

from refprotofl import Experiment
from refprotofl.federation import run
from refprotofl.report.live.web_server import BackgroundServer

TINY = tiny_keys(clients=2, public={"per-class": 1}, evaluate={"test-limit": 20})


def test_a_watched_run_ends_at_the_same_digest_and_the_watcher_ends_with_it(tmp_path: Path) -> None:
    alone = run(Experiment.parse(TINY), out=tmp_path / "alone")
    server = BackgroundServer(tmp_path / "watched")
    try:
        watched = run(Experiment.parse(TINY), out=tmp_path / "watched")
        with urllib.request.urlopen(server.address, timeout=300) as answer:  # it may still be starting
            assert b"refprotofl on digits" in answer.read()
    finally:
        server.close()
    assert watched.summary["state_digest"] == alone.summary["state_digest"]
    assert not server._process.is_alive()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.address, timeout=30)


def test_a_watcher_that_dies_does_not_concern_the_run(tmp_path: Path) -> None:
    server = BackgroundServer(tmp_path / "run")
    server._process.kill()
    server._process.join(60)
    assert run(Experiment.parse(TINY), out=tmp_path / "run").summary["rounds_done"] == 2
    server.close()
