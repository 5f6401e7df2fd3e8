"""Processes that this package starts."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import multiprocessing, sys
from refprotofl.core import main_hidden
print("script", flush=True)
process = multiprocessing.get_context("spawn").Process(target=print, args=("child",))
with main_hidden():
    process.start()
process.join()
sys.exit(process.exitcode)
"""


def test_a_script_that_does_not_ask_for_its_name_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["script", "child"]
