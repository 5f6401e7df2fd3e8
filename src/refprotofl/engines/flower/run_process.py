"""The process of one run of a site; the SuperLink starts it.

python -m refprotofl.engines.flower.run_process SITE RUN
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from refprotofl.core import RefProtoFLError, RunError
from refprotofl.deploy.registry import place_in
from refprotofl.deploy.site import Site, read_site
from refprotofl.deploy.status import StatusCallback, say
from refprotofl.engines.flower.internals import OperatorGrid
from refprotofl.engines.flower.superlink import TOKEN

if TYPE_CHECKING:
    from refprotofl.deploy.run_config import Value

LOOK = 1.0  # seconds between two looks whether the SuperLink is still there


def main() -> None:
    site, run = read_site(Path(sys.argv[1])), sys.argv[2]
    token = os.environ.pop(TOKEN)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopped)
    grid = OperatorGrid(site, token)
    config = grid.begin().override_config
    try:
        _run(grid, site, config, run)
    except RefProtoFLError as problem:
        say(f"Error: {problem}")
        grid.finish(False, f"[{problem.exit_code}] {problem}")
    except Exception as problem:
        grid.finish(False, f"[{RunError.exit_code}] Internal error: {type(problem).__name__}: {problem}")
        raise
    else:
        grid.finish(True)


def _run(grid: OperatorGrid, site: Site, config: "Mapping[str, Value]", run: str) -> None:
    from refprotofl.deploy.run import deploy
    from refprotofl.deploy.run_config import read_run_config
    from refprotofl.engines.flower.grid_transport import FlowerTransport

    finished = deploy(
        FlowerTransport(grid), read_run_config(config), place_in(site), StatusCallback(site.runs / f"{run}.json")
    )
    say(f"The run is in {finished.folder}, state digest {finished.summary['state_digest'][:12]}.")


def _stopped(number: int, frame: FrameType | None) -> None:
    say("Stopped. Committed rounds are kept: continue with refprotofl deploy run and the same --out.")
    sys.stdout.flush()
    os._exit(0)


def _end_with(parent: int) -> None:
    """End when the SuperLink is gone: nothing could be sent any more."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


if __name__ == "__main__":
    main()
