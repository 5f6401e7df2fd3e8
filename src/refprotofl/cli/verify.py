"""The command `verify`."""

from pathlib import Path
from typing import Annotated

import typer

from refprotofl.cli.app import RunFolder, app, read_path
from refprotofl.cli.output import notes, say
from refprotofl.core import RunError


@app.command(epilog="Example: refprotofl verify runs/a runs/b")
def verify(
    run_folder: RunFolder,
    other: Annotated[
        Path | None,
        typer.Argument(
            help="A second run to compare with.", parser=read_path, metavar="[RUN_FOLDER]", show_default=False
        ),
    ] = None,
) -> None:
    """Recompute a run's state digest from its checkpoint, and check its events and summary against it.

    For two runs, report the first difference. Code named by a run folder is never imported.
    """
    from refprotofl.records import first_difference

    for folder in (run_folder, other):
        if folder is not None:
            _verify(folder)
    if other is not None:
        difference = first_difference(run_folder, other)
        if difference is not None:
            raise RunError(difference)
        say("The two runs agree in all messages and states.")


def _verify(folder: Path) -> None:
    from refprotofl.engines import read_if_here
    from refprotofl.federation import known_digests
    from refprotofl.records import read_experiment, read_manifest, verify_run

    experiment, recorded = read_experiment(folder), read_manifest(folder / "checkpoint").get("initial")
    found = verify_run(folder, known_digests(experiment, recorded), read_if_here)
    line = f"{folder}: round {found.round} is intact, state digest {found.state_digest}"
    untrained = experiment.clients - found.clients_with_state
    if not found.recomputed:
        line = (
            f"{folder}: the files of round {found.round} are intact, but its state digest {found.state_digest} cannot "
            f"be recomputed: {untrained} clients never trained, and the custom code that builds their model is not run."
        )
    elif untrained and recorded is not None:
        say(f"For {untrained} clients that never trained, the digests in the manifest were used.", notes)
    say(line)
    if len(found.kept) > 1:
        say(f"Checkpoints of rounds {', '.join(map(str, found.kept))}: all files are intact.")
    for note in found.notes:
        say(note, notes)
