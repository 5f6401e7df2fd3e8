"""A federation under Flower's simulation: the run of this machine, with its nodes in place of worker processes."""

import json
import time
from functools import lru_cache
from pathlib import Path

from refprotofl.deploy.envelope import Envelope
from refprotofl.deploy.run import Settings
from refprotofl.deploy.transport import Transport
from refprotofl.engines.flower.executor import GridExecutor
from refprotofl.engines.local.engine import LocalEngine
from refprotofl.engines.local.host import ClientHost
from refprotofl.engines.local.pipes import pack_outcome, unpack_task
from refprotofl.errors import InputError, RefProtoFLError
from refprotofl.simulation.engine import Site, build_worker_host, worker_specifications
from refprotofl.simulation.run import Finished, run
from refprotofl.simulation.watching import Watcher


def simulate(transport: Transport, nodes: list[int], settings: Settings, watcher: Watcher) -> Finished:
    """The ServerApp's part. It goes on with the run in the folder, if there is one."""

    def open_engine(site: Site) -> LocalEngine:
        sizes = [len(indices) for indices in site.federation.data.client_indices]
        places, specifications = nodes[: site.workers], worker_specifications(site)
        return LocalEngine(
            lambda: GridExecutor(transport, places, specifications, sizes), site.folder, site.records, site.kept
        )

    return run(
        settings.experiment,
        out=settings.out,
        data=settings.data,
        workers=len(nodes),
        resume=True,
        watcher=watcher,
        engine=open_engine,
    )


def do_task(envelope: Envelope) -> Envelope:
    """The ClientApp's part, in whichever process Flower runs it."""
    try:
        host = _host(str(envelope.header["specification"]))
        begin = time.monotonic()
        outcome = host.do(unpack_task(envelope.payload))
    except RefProtoFLError as problem:
        return Envelope({"trouble": str(problem)})
    return Envelope({"seconds": time.monotonic() - begin}, pack_outcome(outcome))


@lru_cache(maxsize=1)
def _host(specification: str) -> ClientHost:
    folder = Path(json.loads(specification)["folder"])
    if not folder.is_dir():
        raise InputError(
            f"This node does not see the run folder {folder.parent}, so it is on another machine than the server. "
            "For devices with their own data, see refprotofl deploy."
        )
    return build_worker_host(specification.encode())
