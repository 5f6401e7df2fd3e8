"""The command `reproduce`."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.cli.app import (
    DataDir,
    Device,
    Settings,
    Workers,
    app,
    limit_kernels,
    nothing_kept_yet,
    read_seeds,
    read_workers,
    with_device,
)
from refprotofl.cli.output import notes, say, warn
from refprotofl.cli.report import report_finished
from refprotofl.cli.study import (
    Margin,
    NoRuns,
    Results,
    Seeds,
    StudyFolder,
    planning,
    read_margin,
    show_table,
    warn_failed,
)
from refprotofl.core import RunError, counted, for_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from refprotofl.studies import Result
    from refprotofl.studies.reproduce.paper_tables import Tables


class TableName(StrEnum):
    accuracy = "accuracy"
    ablation = "ablation"
    communication = "communication"
    sweeps = "sweeps"
    compressors = "compressors"
    curves = "curves"
    partition_figure = "partition-figure"
    tsne_figure = "tsne-figure"
    thin = "thin"
    rivals = "rivals"
    headline = "headline"
    thin_ablation = "thin-ablation"
    plus = "plus"
    all = "all"


class Variants(StrEnum):
    standard = "standard"
    reconstruction = "reconstruction"
    both = "both"


class Sizes(StrEnum):
    quick = "quick"
    small = "small"
    full = "full"
    paper = "paper"


Table = Annotated[TableName, typer.Argument(help="The table or figure.", show_default=False)]
Size = Annotated[Sizes, typer.Option("--preset", help="paper is the paper's setting; the others are smaller.")]
Datasets = Annotated[
    str | None,
    typer.Option(help="Comma-separated data sets; the paper's four, or digits with quick.", show_default=False),
]
Alphas = Annotated[
    str | None, typer.Option(help="Comma-separated Dirichlet alphas.", show_default="0.5,100, or 0.5 with quick")
]
Only = Annotated[
    str | None,
    typer.Option(help="Only these comma-separated methods; those that the paper lacks are added.", show_default=False),
]
OnlyRows = Annotated[
    list[str] | None,
    typer.Option("--row", metavar="ROW", help="Only this row, as the table names it; repeatable.", show_default=False),
]
VariantName = Annotated[
    Variants,
    typer.Option(
        help="standard: methods that average weights share the whole model; reconstruction: all share the adapter and "
        "are scored before aggregation, as the paper most likely did."
    ),
]
Tuned = Annotated[
    list[str] | None,
    typer.Option(
        help="DATASET=FILE.toml: settings that tune chose, for the standard variant; repeatable.", show_default=False
    ),
]
Against = Annotated[
    str,
    typer.Option(
        metavar="ROW",
        help="The row that the others are compared with, as the table names it.",
        show_default="RefProtoFL",
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        help="The accuracy that rows are compared by, in the standard variant.", show_default="the table's own"
    ),
]
Last = Annotated[int, typer.Option(min=2, help="Number of final evaluations that are averaged.")]


@app.command(epilog="Example: refprotofl reproduce accuracy --preset small --dataset fashion-mnist --alpha 0.5")
def reproduce(
    table: Table,
    preset: Size = Sizes.quick,
    dataset: Datasets = None,
    alpha: Alphas = None,
    methods: Only = None,
    row: OnlyRows = None,
    seeds: Seeds = "0,1,2",
    variant: VariantName = Variants.both,
    tuned: Tuned = None,
    settings: Settings = None,
    against: Against = "",
    margin: Margin = None,
    protocol: Protocol = "",
    last: Last = 3,
    out_dir: StudyFolder = Path("runs/reproduce"),
    results: Results = None,
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    no_runs: NoRuns = False,
) -> None:
    """Run the experiments of the paper's tables and figures, and write these with the paper's numbers next to ours.

    An interrupted study is resumed by the same command, and several terminals may work on the same one.
    """
    with nothing_kept_yet():
        limit_kernels(None, settings)
        from refprotofl.studies import CELLS, KeptResults, find_cells, split_list
        from refprotofl.studies.reproduce import outputs, request
        from refprotofl.studies.reproduce.studies import Scope

        datasets = tuple(dict.fromkeys(split_list(dataset))) if dataset else request.default_datasets(preset)
        asked = request.Request(
            table=table,
            preset=preset,
            scope=Scope(datasets, request.alphas_of(preset, alpha), tuple(split_list(methods or "")), tuple(row or ())),
            variants=tuple(one for one in request.VARIANTS if variant in (Variants.both, one)),
            settings=tuple(with_device(settings or [], device)),
            seeds=tuple(dict.fromkeys(read_seeds(seeds))),
            tuned=request.read_tuned_files(tuned or [], datasets),
            out=out_dir,
            against=against.strip(),
            protocol=protocol.strip(),
            margin=read_margin(margin),
        )
        count, grids = read_workers(workers), asked.grids()
        kept = KeptResults(out_dir / CELLS, tuple(file for folder in results or () for file in find_cells(folder)))
    for sentence in request.find_leaks(asked.tuned, asked.seeds):
        warn(for_terminal(sentence))
    with planning(out_dir, data, count, kept=kept) as planner:
        found = outputs.results_of(planner, grids, data, no_runs, lambda sentence: say(sentence, notes))
    warn_failed(planner)
    _say_numerics(found)
    _show_tables(outputs.write_tables(grids, found, last, out_dir / "tables").values(), out_dir / "tables")
    _show_figures(*outputs.draw_all(grids, asked.scope, found, last, data, out_dir / "figures"))
    if found:
        report_finished([out_dir], out_dir / "report.html", data, blocks=outputs.blocks_of(grids, data, kept))
    if planner.failures:
        raise typer.Exit(RunError.exit_code)


def _say_numerics(results: "dict[str, Result]") -> None:
    from refprotofl.studies import count_numerics

    if results:
        say(f"Numerics of the results: {count_numerics(results.values())}", notes)


def _show_tables(found: "Iterable[Tables]", folder: Path) -> None:
    """Print the overviews, each note once."""
    written = 0
    explained: set[str] = set()
    for tables in found:
        written += len(tables.overviews) + len(tables.details)
        for table in tables.overviews:
            show_table(table, [note for note in table.notes if note not in explained])
            explained.update(table.notes)
    if written:
        say(f"{counted(written, 'table')} in {for_terminal(folder)}, each as Markdown, LaTeX, CSV and JSON")


def _show_figures(written: "Iterable[str]", lacking: "Iterable[str]") -> None:
    if names := ", ".join(map(for_terminal, lacking)):
        warn(f"The t-SNE figure is without {names}: it needs their run folders.")
    for sentence in written:
        say(for_terminal(sentence))
