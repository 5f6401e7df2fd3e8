"""The command `audit`."""

from pathlib import Path
from typing import Annotated

import typer

from refprotofl.cli.app import DataDir, TrustCode, app, nothing_kept_yet, read_path
from refprotofl.cli.output import notes, say
from refprotofl.cli.study import Format, TableFormat, print_table


@app.command(epilog="Example: refprotofl audit runs/plain runs/private")
def audit(
    runs: Annotated[
        list[Path],
        typer.Argument(parser=read_path, metavar="RUN…", help="Run folders, with and without [privacy]."),
    ],
    clients: Annotated[int, typer.Option(min=1, help="Number of clients to attack, the first ones.")] = 10,
    data: DataDir = None,
    trust_code: TrustCode = False,
    table_format: TableFormat = Format.table,
) -> None:
    """Attack finished runs: membership inference, and reconstruction of images from class prototypes.

    The attacker has every client's whole model, more than any participant receives.
    """
    with nothing_kept_yet():
        from refprotofl.studies.audit.audit import audit as audit_run
        from refprotofl.studies.audit.audit import tabulated

        audits = []
        for run in runs:
            say(f"Attacking {run}", notes)
            audits.append(audit_run(run, data, clients, trust_code))
        table = tabulated(audits, [str(run) for run in runs])
    print_table(table, table_format)
