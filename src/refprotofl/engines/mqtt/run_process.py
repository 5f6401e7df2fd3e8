"""The process of one run of a site over MQTT; the server starts it.

python -m refprotofl.engines.mqtt.run_process SITE RUN
"""

import os
import sys
import threading
from functools import partial
from pathlib import Path

from refprotofl.deploy.log import log
from refprotofl.deploy.run_process import deploy_run, follow_server, report_run
from refprotofl.deploy.site import Site, read_site
from refprotofl.engines.mqtt import runs
from refprotofl.engines.mqtt.identities import admitted_nodes
from refprotofl.engines.mqtt.server import cut_off, server_link


def main() -> None:
    site, run = read_site(Path(sys.argv[1])), int(sys.argv[2])
    follow_server()
    report_run(partial(_run, site, run), partial(_finish, site, run))
    sys.stdout.flush()
    os._exit(0)  # the connection's thread must not hold it up


def _run(site: Site, run: int) -> None:
    from refprotofl.engines.mqtt.transport import MqttTransport

    def cut(node: str) -> None:
        threading.Thread(target=cut_off, args=(site, node), daemon=True).start()

    link = server_link(site, f"run-{run}-{os.getpid()}", kept=3600)
    transport = MqttTransport(link, lambda: admitted_nodes(site), site.keys.max_message, cut=cut, warn=log)
    deploy_run(transport, runs.read_run(site, run)["config"], site, run)


def _finish(site: Site, run: int, exit_code: int, reason: str) -> None:
    runs.finish(site, run, "failed" if exit_code else "completed", reason, exit_code)


if __name__ == "__main__":
    main()
