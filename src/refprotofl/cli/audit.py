"""The command `audit`."""

from pathlib import Path
from typing import Annotated

import typer

from refprotofl.cli.app import DataDir, TrustCode, app, nothing_kept_yet, read_path
from refprotofl.cli.attack import SUFFIXES
from refprotofl.cli.compare import Format
from refprotofl.cli.grids import show_table
from refprotofl.cli.output import emit, notes, say


@app.command(epilog="Example: refprotofl audit runs/plain runs/private")
def audit(
    runs: Annotated[
        list[Path],
        typer.Argument(parser=read_path, metavar="RUN…", help="Folders of runs: with [privacy], without."),
    ],
    clients: Annotated[int, typer.Option(min=1, help="How many clients are attacked, from the first on.")] = 10,
    data: DataDir = None,
    trust_code: TrustCode = False,
    table_format: Annotated[Format, typer.Option("--format", help="How the table is printed.")] = Format.table,
) -> None:
    """Attack finished runs: who was in their data, and what class prototypes show.

    The attacker has every client's whole model: what it cannot find nobody can who is sent less.
    """
    with nothing_kept_yet():
        from refprotofl.report.tables import WRITERS
        from refprotofl.studies.audit.study import audit as audit_run
        from refprotofl.studies.audit.study import tabulated

        audits = []
        for run in runs:
            say(f"Attacking {run}", notes)
            audits.append(audit_run(run, data, clients, trust_code))
        table = tabulated(audits, [str(run) for run in runs])
    if table_format is Format.table:
        show_table(table, table.notes)
    else:
        emit(WRITERS[SUFFIXES[table_format]](table))
