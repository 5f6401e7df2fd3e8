"""The common parts of the study commands: their options, the planner with its progress bar, and the table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.cli.app import INTERRUPTED, read_path, with_device
from refprotofl.cli.output import Column, complain, emit, explain, notes, show, warn
from refprotofl.core import InputError, counted, for_terminal

if TYPE_CHECKING:
    from refprotofl.federation import Workers
    from refprotofl.report import Table
    from refprotofl.studies import Base, KeptResults, Planner


class Format(StrEnum):
    table = "table"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    json = "json"


SUFFIXES = {Format.markdown: "md", Format.latex: "tex", Format.csv: "csv", Format.json: "json"}

Methods = Annotated[
    str,
    typer.Option(
        help="Comma-separated methods. Colons add switches: fedavg:share=adapter (the default is what the method's "
        "paper shares: the whole model). A method of your own is module:Class. A row may have a name: 'plain = fedavg'."
    ),
]
Seeds = Annotated[str, typer.Option("--seeds", "--seed", help="Seeds: 3, 0,1,2 or 0-4.")]
Margin = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE",
        help="Non-inferiority margin as a share of 1, such as 0.01 for a point: each row's difference gets a verdict.",
        show_default=False,
    ),
]
SearchSeeds = Annotated[
    str, typer.Option("--seeds", "--seed", help="Seeds: 1000, 1000,1001 or 1000-1004; report results with other seeds.")
]
Protocol = Annotated[str, typer.Option(help="The accuracy to maximise.")]
StudyFolder = Annotated[
    Path,
    typer.Option(
        "--out", parser=read_path, metavar="DIR", help="Folder of the runs and results; finished runs are reused."
    ),
]
Results = Annotated[
    list[Path] | None,
    typer.Option(
        parser=read_path,
        metavar="DIR",
        help="Folder of studies whose finished runs are used, too; repeatable.",
        show_default=False,
    ),
]
NoRuns = Annotated[bool, typer.Option("--no-runs", help="Use finished runs only; missing ones are listed.")]
TableFormat = Annotated[Format, typer.Option("--format", help="How the table is printed.")]
SearchAsJson = Annotated[bool, typer.Option("--json", help="Print the whole search as JSON.")]


def read_base(file: Path | None, preset: str | None, settings: list[str] | None, device: str | None) -> "Base":
    """Return the experiment that the options of a study command name."""
    from refprotofl.studies import Base

    return Base(file, preset, tuple(with_device(settings or [], device)))


def read_margin(text: str | None) -> float | None:
    try:
        margin = None if text is None else float(text)
    except ValueError:
        margin = -1.0
    if margin is not None and not 0 <= margin < 1:
        raise InputError(f"--margin {text}: expected a share of 1, such as 0.01 for one point of accuracy.")
    return margin


@contextmanager
def planning(
    out: Path, data: Path | None, workers: "Workers", kept: "KeptResults | None" = None, runs: int | None = None
) -> "Iterator[Planner]":
    """Give a planner with a progress bar; an interruption is reported with what is kept in `out`.

    `runs`: how many the whole study has, if that is known before.
    """
    from refprotofl.cli.progress import RunNumbers, StudyProgress
    from refprotofl.studies import Planner

    numbers = RunNumbers(runs)
    planner = Planner(data, workers, kept=kept, progress=lambda trials: StudyProgress(notes, trials, numbers))
    try:
        yield planner
    except KeyboardInterrupt:
        finished = f"{len(planner.finished)} of {counted(len(planner.planned), 'run')}"
        complain(f"Interrupted. Finished and kept in {for_terminal(out)}: {finished}. The same command resumes.")
        raise typer.Exit(INTERRUPTED) from None


def warn_failed(planner: "Planner") -> None:
    for one in planner.failures:
        name, seed = for_terminal(one.trial.name), one.trial.experiment.seed
        warn(f"{name}, seed {seed}: {for_terminal(one.problem)}")


def print_table(table: "Table", table_format: Format) -> None:
    from refprotofl.report.tables import WRITERS

    if table_format is Format.table:
        show_table(table, table.notes)
    else:
        emit(WRITERS[SUFFIXES[table_format]](table))


def show_table(table: "Table", beneath: Sequence[str]) -> None:
    """Show a table on the terminal, with a star for bold."""
    words = [Column(heading, wraps=24) for heading in table.headings[: table.left]]
    numbers = [Column(heading, numbers=True) for heading in table.headings[table.left :]]
    shown = {"best": "{} *", "within noise": "{} †", "behind": "{}"}
    rows = [[shown[entry.standing].format(entry.text) for entry in row] for row in table.rows]
    show([*words, *numbers], rows, table.title)
    for note in beneath:
        explain(for_terminal(note.replace("Bold:", "*:")))
