"""The process of one run of a site, whatever its transport: it ends with its server, and reports how the run ended."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING

from refprotofl.core import RefProtoFLError, RunError
from refprotofl.deploy.log import log
from refprotofl.deploy.registry import place_in
from refprotofl.deploy.site import Site
from refprotofl.deploy.status import StatusCallback

if TYPE_CHECKING:
    from refprotofl.deploy.run_config import Value
    from refprotofl.deploy.transport import Transport

LOOK = 1.0  # seconds between two looks whether the server is still there


def follow_server() -> None:
    """End this process when it is asked to stop, or when its server has ended."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopped)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


def _stopped(number: int, frame: FrameType | None) -> None:
    log("Stopped. Committed rounds are kept: continue with refprotofl deploy run and the same --out.")
    sys.stdout.flush()
    os._exit(0)


def report_run(run: Callable[[], None], finish: Callable[[int, str], None]) -> None:
    """Run, and call `finish` with the exit code and the reason of a failure."""
    try:
        run()
    except RefProtoFLError as problem:
        log(f"Error: {problem}", "failed", exit_code=problem.exit_code)
        finish(problem.exit_code, str(problem))
    except Exception as problem:
        finish(RunError.exit_code, f"Internal error: {type(problem).__name__}: {problem}")
        raise
    else:
        finish(0, "")


def deploy_run(transport: "Transport", config: "Mapping[str, Value]", site: Site, run: int | str) -> None:
    """Run the experiment that these settings name over the nodes of the site."""
    from refprotofl.deploy.finals import final_path, hand_out
    from refprotofl.deploy.run import deploy
    from refprotofl.deploy.run_config import read_run_config

    place, progress = place_in(site), StatusCallback(site.runs / f"{run}.json")
    finished = deploy(transport, read_run_config(config), place, progress, final_path(site, run))
    hand_out(transport, site, run, lambda node: place(node, node.name))
    log(f"The run is in {finished.folder}, state digest {finished.summary['state_digest'][:12]}.", "end")
