"""The process of one run of a site over MQTT; the server starts it.

python -m refprotofl.engines.mqtt.run_process SITE RUN
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from refprotofl.core import RefProtoFLError, RunError
from refprotofl.deploy.registry import place_in
from refprotofl.deploy.site import Site, read_site
from refprotofl.deploy.status import StatusCallback, say
from refprotofl.engines.mqtt import runs
from refprotofl.engines.mqtt.identities import admitted_nodes
from refprotofl.engines.mqtt.server import cut_off, server_link

LOOK = 1.0  # seconds between two looks whether the server is still there


def main() -> None:
    site, run = read_site(Path(sys.argv[1])), int(sys.argv[2])
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stopped)
    try:
        _run(site, run)
    except RefProtoFLError as problem:
        say(f"Error: {problem}")
        runs.finish(site, run, "failed", str(problem), problem.exit_code)
    except Exception as problem:
        reason = f"Internal error: {type(problem).__name__}: {problem}"
        runs.finish(site, run, "failed", reason, RunError.exit_code)
        raise
    else:
        runs.finish(site, run, "completed", "", 0)
    sys.stdout.flush()
    os._exit(0)  # the connection's thread must not hold it up


def _run(site: Site, run: int) -> None:
    from refprotofl.deploy.run import deploy
    from refprotofl.deploy.run_config import read_run_config
    from refprotofl.engines.mqtt.transport import MqttTransport

    def cut(node: str) -> None:
        threading.Thread(target=cut_off, args=(site, node), daemon=True).start()

    link = server_link(site, f"run-{run}-{os.getpid()}", kept=3600)
    transport = MqttTransport(link, lambda: admitted_nodes(site), site.keys.max_message, cut=cut, warn=say)
    settings = read_run_config(runs.read_run(site, run)["config"])
    finished = deploy(transport, settings, place_in(site), StatusCallback(site.runs / f"{run}.json"))
    say(f"The run is in {finished.folder}, state digest {finished.summary['state_digest'][:12]}.")


def _stopped(number: int, frame: FrameType | None) -> None:
    say("Stopped. Committed rounds are kept: continue with refprotofl deploy run and the same --out.")
    sys.stdout.flush()
    os._exit(0)


def _end_with(parent: int) -> None:
    """End when the server is gone: another one would start the run anew."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


if __name__ == "__main__":
    main()
