"""Every run records how it was computed, and is resumed and reused only so."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refprotofl.core import numerics
from refprotofl.core.errors import InputError
from refprotofl.experiment import Experiment
from refprotofl.federation import run
from refprotofl.federation.provenance import current_folder
from refprotofl.records.events import read_events
from refprotofl.records.manifest import read_manifest, recorded_numerics, signed

pytestmark = pytest.mark.skipif(not numerics.has_avx2(), reason="needs x86-64 with AVX2")


def rewrite(folder: Path, mode: str | None) -> None:
    """Make it a run computed in another mode, or by a version that recorded none."""
    for file in (folder / "checkpoint").glob("manifest*.json"):
        manifest = read_manifest(folder / "checkpoint", file.name)
        manifest["origin"].pop("numerics", None)
        manifest["origin"] |= {} if mode is None else {"numerics": mode}
        file.write_bytes(signed(manifest))


def machines(folder: Path) -> list[dict[str, Any]]:
    return [event["machine"] for event in read_events(folder) if event["event"] in ("start", "resume")]


def test_it_is_not_part_of_the_experiment(tiny: Callable[..., Experiment]) -> None:
    assert tiny(numerics="native").hash == tiny().hash
    assert "numerics" not in tiny(numerics="native").plain()


def test_events_and_manifest_say_how_it_was_computed(finished_copy: Path) -> None:
    (machine,) = machines(finished_copy)
    assert (machine["numerics"], machine["cpu_capability"]) == ("portable", "AVX2")
    assert read_manifest(finished_copy / "checkpoint")["origin"]["numerics"] == "portable"
    assert recorded_numerics(finished_copy) == "portable"


def test_a_native_run_is_not_resumed_portably(tiny: Callable[..., Experiment], cut_off: Path) -> None:
    rewrite(cut_off, "native")
    with pytest.raises(InputError, match=r'numerics \("native" before, "portable" here and now\) changed since'):
        run(tiny(), out=cut_off, resume=True)


def test_a_grid_computes_anew_what_was_native(tiny: Callable[..., Experiment], finished_copy: Path) -> None:
    assert current_folder(finished_copy, tiny(), None) == finished_copy
    rewrite(finished_copy, "native")
    assert current_folder(finished_copy, tiny(), None) == finished_copy.with_name("finished-2")


def test_before_a_round_is_committed_nothing_is_recorded(tmp_path: Path) -> None:
    assert recorded_numerics(tmp_path) is None


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run refprotofl in a process that inherits no limits of this one."""
    clean = {name: value for name, value in os.environ.items() if name not in numerics.VARIABLES}
    program = [sys.executable, "-c", "from refprotofl.cli import main; main()"]
    return subprocess.run([*program, *arguments], capture_output=True, text=True, env=clean)


def test_a_native_run_is_resumed_natively_by_itself(tmp_path: Path) -> None:
    small = ["clients=2", "train-limit=150", "rounds=1", "model.embedding=8", "evaluate.test-limit=20"]
    settings = [part for one in small for part in ("--set", one)]
    out = str(tmp_path / "run")
    begun = command("run", "--preset", "quick", *settings, "--set", "numerics=native", "--out", out, "--workers", "1")
    assert begun.returncode == 0, begun.stderr
    resumed = command("run", "--resume", "--out", out, "--set", "rounds=2", "--workers", "1")
    assert resumed.returncode == 0, resumed.stderr
    assert [one["numerics"] for one in machines(tmp_path / "run")] == ["native", "native"]
    refused = command("run", "--resume", "--out", out, "--set", "rounds=3", "--set", "numerics=portable")
    assert refused.returncode == 2
    assert 'numerics ("native" before, "portable" here and now) changed since' in " ".join(refused.stderr.split())


def test_a_file_may_ask_for_native(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('numerics = "native"\nclients = 2\nrounds = 1\ntrain-limit = 150\n')
    out = tmp_path / "compared"
    ended = command(
        *("compare", str(file), "--preset", "quick", "--methods", "local", "--seeds", "0", "--workers", "1"),
        *("--out", str(out), "--format", "json"),
    )
    assert ended.returncode == 0, ended.stderr
    (row,) = json.loads(ended.stdout)
    assert [machine["numerics"] for folder in row["runs"] for machine in machines(Path(folder))] == ["native"]
