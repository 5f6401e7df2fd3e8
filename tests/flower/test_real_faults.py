"""Faults on loopback with real SuperLink and SuperNodes. They take minutes: `make test-flower-faults`."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.flower.conftest import CLIENTS
from tests.flower.deploying import Configs
from tests.flower.site import PATIENCE, Site, wait_for

from refprotofl.records.events import read_events
from refprotofl.records.verify import first_difference

pytestmark = pytest.mark.skipif(os.environ.get("REFPROTOFL_FAULTS") != "full", reason="takes minutes")


@pytest.fixture
def site(tmp_path: Path, apart: Path) -> Iterator[Site]:
    site = Site(tmp_path / "site")
    site.begin()
    for number in range(CLIENTS):
        site.join(number, apart / f"client-{number}.npz")
    yield site
    site.close()


def rounds(out: Path) -> int:
    if not (out / "events.jsonl").exists():
        return 0
    return sum(event["event"] == "round" for event in read_events(out))


def is_kept_out(log: Path) -> bool:
    """Flower says that it ends, or that it tries again."""
    return any(words in log.read_text(errors="replace") for words in ("Exit Code", "retrying"))


def test_a_node_that_is_killed_and_comes_back_changes_nothing(
    site: Site, settings: Configs, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "there"
    site.submit(settings() | {"out": str(out)})
    wait_for(lambda: rounds(out) >= 1, PATIENCE, site.log)
    site.kill_node(1)
    site.start_node(1)
    wait_for((out / "summary.json").exists, PATIENCE, site.log)
    assert first_difference(undisturbed, out) is None


def test_a_superlink_that_is_killed_and_started_again_loses_no_committed_round(
    site: Site, settings: Configs, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "there"
    site.submit(settings() | {"out": str(out)})
    wait_for(lambda: rounds(out) >= 1, PATIENCE, site.log)
    site.refprotofl("deploy", "stop", str(site.folder))
    site.refprotofl("deploy", "start", str(site.folder), "--bind", "127.0.0.1")
    site.submit(settings() | {"out": str(out)})
    wait_for((out / "summary.json").exists, PATIENCE, site.log)
    assert first_difference(undisturbed, out) is None


def test_an_unregistered_key_and_a_wrong_authority_are_kept_out(site: Site, tmp_path: Path) -> None:
    for number, spoil in ((0, "node.key"), (1, "ca.crt")):
        site.kill_node(number)
        kit = site.made.kit(number)
        (kit / spoil).unlink()
        (kit / "log").write_text("")
        if spoil == "ca.crt":
            other = Site(tmp_path / "other")
            other.refprotofl("deploy", "init", str(other.folder), "--nodes", "1", "--host", "127.0.0.1")
            shutil.copy(other.made.server / "ca.crt", kit / "ca.crt")
            told = site.refprotofl("deploy", "doctor", str(kit), code=2)
            assert "has no certificate that ca.crt vouches for" in told
        else:
            (kit / "node.key.pub").unlink()
        site.start_node(number)
    for number in (0, 1):
        log = site.made.kit(number) / "log"
        wait_for(partial(is_kept_out, log), 120, log.read_text)
