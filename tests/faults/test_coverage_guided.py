"""Readers of outside data under a coverage-guided fuzzer: only in `make test-faults`, and where atheris installs."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Tried

SECONDS = 300
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(os.environ.get("REFPROTOFL_FAULTS") != "full", reason="takes minutes: make test-faults"),
    pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed"),
]


@pytest.mark.parametrize("what", ["message", "state"])
def test_no_bytes_do_more_than_to_be_refused(tmp_path: Path, what: str, tried: Tried) -> None:
    command = [sys.executable, "-m", "tests.faults.fuzz", what, str(SECONDS), str(tmp_path / "corpus")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS + 120)
    assert done.returncode == 0, done.stderr[-3000:]
    executed = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    assert executed
    tried(f"inputs to the reader of a {what}, towards new branches", int(executed[1]))
