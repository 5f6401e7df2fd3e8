"""--device of `run` and `compare`: it is checked, it overrides --set, and a run may be resumed on another device."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from refprotofl.federation import RunResult

if TYPE_CHECKING:
    from tests.cli.conftest import Command


@pytest.mark.parametrize("command", [("run",), ("compare", "--methods", "local", "--seeds", "0")])
def test_a_missing_gpu_is_the_users_input(refprotofl: "Command", tiny: Path, command: tuple[str, ...]) -> None:
    for named in (("--device", "cuda"), ("--set", "device=cuda")):
        outcome = refprotofl(*command, tiny, *named, "--out", "run")
        assert outcome.code == 2
        assert 'device = "cuda"' in outcome.err
        assert "Available: cpu" in outcome.err


def test_an_unknown_device_is_named(refprotofl: "Command", tiny: Path) -> None:
    outcome = refprotofl("run", tiny, "--device", "tpu")
    assert outcome.code == 2
    assert "device = 'tpu'" in outcome.err
    assert "auto, cpu, cuda or mps" in outcome.err


def test_the_option_wins_over_the_setting(refprotofl: "Command", tiny: Path, undisturbed: RunResult) -> None:
    ended = ("--workers", "1", "--json", "--out", "run")
    outcome = refprotofl("run", tiny, "--set", "device=cuda", "--device", "cpu", *ended)
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["state_digest"] == undisturbed.summary["state_digest"]


def test_going_on_takes_another_device(refprotofl: "Command", cut_off: Path) -> None:
    refused = refprotofl("run", "--resume", "--out", cut_off, "--device", "mps", "--workers", "1")
    assert refused.code == 2
    assert 'device = "mps"' in refused.err
    assert refprotofl("run", "--resume", "--out", cut_off, "--device", "cpu", "--workers", "1").code == 0
    assert "device" not in json.loads((cut_off / "experiment.json").read_text())
