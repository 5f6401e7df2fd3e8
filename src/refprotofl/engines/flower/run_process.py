"""The process of one run of a site; the SuperLink starts it.

python -m refprotofl.engines.flower.run_process SITE RUN
"""

import logging
import os
import sys
from functools import partial
from pathlib import Path

from refprotofl.deploy.run_process import deploy_run, follow_server, report_run
from refprotofl.deploy.site import read_site
from refprotofl.engines.flower.internals import OperatorGrid
from refprotofl.engines.flower.superlink import TOKEN


def main() -> None:
    site, run = read_site(Path(sys.argv[1])), sys.argv[2]
    token = os.environ.pop(TOKEN)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    follow_server()
    grid = OperatorGrid(site, token)
    config = grid.begin().override_config

    def start() -> None:
        from refprotofl.engines.flower.grid_transport import FlowerTransport

        deploy_run(FlowerTransport(grid), config, site, run)

    report_run(start, partial(_finish, grid))


def _finish(grid: OperatorGrid, exit_code: int, reason: str) -> None:
    grid.finish(exit_code == 0, f"[{exit_code}] {reason}" if exit_code else "")


if __name__ == "__main__":
    main()
