"""A run's accuracy compared with local training: on request, or from an existing run."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Command


def test_the_baseline_is_run_on_request_and_found_again(refprotofl: "Command", tiny: Path, tmp_path: Path) -> None:
    plain = refprotofl("run", tiny, "--out", tmp_path / "runs" / "a")
    assert plain.code == 0, plain.err
    assert " local ┃" not in plain.out
    asked = refprotofl("run", tiny, "--out", tmp_path / "runs" / "b", "--baseline", "local")
    assert asked.code == 0, asked.err
    summary = json.loads((tmp_path / "runs" / "b-local" / "summary.json").read_text())
    assert " local ┃" in asked.out
    (line,) = [line for line in asked.out.splitlines() if "personal " in line and "%" in line and "│" in line]
    assert f"{100 * summary['accuracy']['personal']:.2f} %" in line
    found = refprotofl("run", "--resume", "--out", tmp_path / "runs" / "a")
    assert f"{100 * summary['accuracy']['personal']:.2f} %" in found.out  # now that it is there
    assert "Lowest recall by class" in found.out


def test_a_baseline_that_is_no_method_is_refused_before_anything_runs(
    refprotofl: "Command", tiny: Path, tmp_path: Path
) -> None:
    outcome = refprotofl("run", tiny, "--out", tmp_path / "run", "--baseline", "locl")
    assert outcome.code == 2
    assert "did you mean 'local'" in outcome.err
    assert not (tmp_path / "run").exists()
