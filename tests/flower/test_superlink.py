"""The SuperLink that `deploy start` starts: nobody is refused by its database, and only itself keeps to one core."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.flower.loopback import BIN, QUIET, free_port

IN_A_ROW = """
import sys, threading, time
from flwr.supercore.sql_mixin import SqlMixin
from refprotofl.engines.flower.superlink import tune

class State(SqlMixin):
    pass

tune()
state = State(sys.argv[1])
state.initialize()
state.query("CREATE TABLE seen (number INTEGER)")
refused = []

def write(number):
    try:
        with state.session():
            state.query("INSERT INTO seen VALUES (:number)", {"number": number})
            time.sleep(0.4)  # as one does that waits for its turn
    except Exception as problem:
        refused.append(type(problem).__name__)

writers = [threading.Thread(target=write, args=(number,)) for number in range(20)]
for one in writers:
    one.start()
for one in writers:
    one.join()
print(refused, state.query("SELECT count(*) AS n FROM seen"))
"""


def test_writers_stand_in_a_row_and_none_is_refused(tmp_path: Path) -> None:
    """Twenty that take eight seconds together: with Flower's own command seven of them were refused."""
    command = [sys.executable, "-c", IN_A_ROW, str(tmp_path / "state.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] [{'n': 20}]"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core")
def test_it_keeps_to_one_core_and_what_it_starts_does_not(tmp_path: Path) -> None:
    place = ["--host", "127.0.0.1", "--port", str(free_port()), "--database", str(tmp_path / "state.db")]
    command = [sys.executable, "-m", "refprotofl.engines.flower.superlink", "--insecure", *place]
    env = {**os.environ, **QUIET, "FLWR_HOME": str(tmp_path), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    log = tmp_path / "log"
    with log.open("wb") as writing:
        process = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=writing, stderr=writing)
    try:
        until = time.monotonic() + 60
        while "Uvicorn running" not in log.read_text() and time.monotonic() < until:
            time.sleep(0.2)
        assert "Uvicorn running" in log.read_text()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(os.sched_getaffinity(process.pid)) == 1
        assert children
        for child in children:
            assert os.sched_getaffinity(int(child)) == os.sched_getaffinity(0)
    finally:
        process.terminate()
        process.wait(30)
