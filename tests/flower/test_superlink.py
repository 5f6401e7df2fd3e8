"""The SuperLink that `deploy start` starts: nobody is refused by its database, and only itself keeps to one core."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.flower.loopback import Loopback

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


@pytest.mark.skipif(not sys.platform.startswith("linux") or os.cpu_count() == 1, reason="looks into /proc at two cores")
def test_it_keeps_to_one_core_and_what_it_starts_does_not(tmp_path: Path) -> None:
    flower = Loopback(tmp_path / "site")
    try:
        flower.start_superlink()
        number = flower.processes["superlink"].pid
        assert len(os.sched_getaffinity(number)) == 1
        children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        assert children
        for child in children:
            assert os.sched_getaffinity(int(child)) == os.sched_getaffinity(0)
    finally:
        flower.close()
