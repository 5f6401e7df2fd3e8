"""The command `attack`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from refprotofl.cli.app import (
    DataDir,
    Device,
    File,
    Preset,
    Settings,
    Workers,
    app,
    limit_kernels,
    nothing_kept_yet,
    read_path,
    read_seeds,
)
from refprotofl.cli.compare import Format
from refprotofl.cli.grids import run_grid, show_table, warn_of
from refprotofl.cli.output import emit, notes, say
from refprotofl.cli.run import read_workers, with_device
from refprotofl.core.escaping import for_file_name, for_terminal
from refprotofl.core.units import counted

if TYPE_CHECKING:
    from refprotofl.federation.session import Workers as Count
    from refprotofl.studies.attacks import Fared, Planned

SUFFIXES = {Format.markdown: "md", Format.latex: "tex", Format.csv: "csv", Format.json: "json"}


@app.command(
    epilog="Example: refprotofl attack --kind signflip,backdoor --fraction 0.2 --defence mean,median --preset quick"
)
def attack(
    kind: Annotated[
        str,
        typer.Option(
            help="Attacks with commas between: signflip, scaling, alie, ipm, squat, freerider, prototype-shift, "
            "labelflip, backdoor; scaling:attack.strength=100 adds a switch. A run without attack stands beside them."
        ),
    ],
    file: File = None,
    fraction: Annotated[float, typer.Option(help="Share of the clients that are hostile.")] = 0.2,
    defence: Annotated[
        str,
        typer.Option(
            help="Values of the key aggregate, with commas between; trimmed:trim=0.1 adds a switch, as "
            "mean:min-senders=3 does."
        ),
    ] = "mean,median,trimmed,clipped,geometric-median",
    methods: Annotated[str, typer.Option(help="Methods with commas between.")] = "refprotofl",
    preset: Preset = None,
    settings: Settings = None,
    seeds: Annotated[str, typer.Option(help="Seeds with commas between.")] = "0,1,2",
    out_dir: Annotated[
        Path,
        typer.Option(
            "--out", parser=read_path, metavar="DIR", help="For runs, tables and figures; finished runs are reused."
        ),
    ] = Path("runs/attack"),
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    table_format: Annotated[Format, typer.Option("--format", help="How the table is printed.")] = Format.table,
) -> None:
    """Simulate hostile clients under several ways to aggregate, and print how the honest ones fare.

    Accuracies are of the honest clients, and of the same ones in the run without attack.
    """
    with nothing_kept_yet():
        limit_kernels(file, settings)
        from refprotofl.report.tables import WRITERS, write_table
        from refprotofl.studies.attacks import Asked, tabulated
        from refprotofl.studies.cells import split_list

        asked = Asked(
            file=file,
            preset=preset,
            settings=tuple(with_device(settings or [], device)),
            methods=tuple(split_list(methods)),
            attacks=tuple(split_list(kind)),
            fraction=fraction,
            defences=tuple(split_list(defence)),
            seeds=tuple(read_seeds(seeds)),
        )
        count, planned = read_workers(workers), asked.cells(out_dir / "runs")
    fared = _fared(planned, fraction, data, count, out_dir)
    dataset, over = planned[0].cell.experiment.dataset, counted(len(asked.seeds), "seed")
    title = f"{dataset}: accuracy of honest clients, {100 * fraction:g} % hostile, mean over {over}"
    table = tabulated(fared, fraction, title)
    written = write_table(out_dir / "tables", table)
    if table_format is Format.table:
        show_table(table, table.notes)
    else:
        emit(WRITERS[SUFFIXES[table_format]](table))
    say(f"Tables are in {for_terminal(written[0].parent)}, as Markdown, LaTeX, CSV and JSON", notes)
    for sentence in _draw(fared, title, out_dir / "figures"):
        say(for_terminal(sentence), notes)


def _fared(
    planned: "list[Planned]", fraction: float, data: Path | None, workers: "Count", out_dir: Path
) -> "list[Fared]":
    """Runs what is not finished; of each run how its honest clients fare."""
    from refprotofl.studies.attacks import by_place, outcome_of
    from refprotofl.studies.runner import Failed

    cells, plans = [one.cell for one in planned], {one.cell.name: one for one in planned}
    failures: list[Failed] = []
    runs = run_grid(cells, data, workers, out_dir, failed=failures.append)
    warn_of(failures)
    done = [outcome_of(plans[cell.name], cell, result, fraction, data) for cell, result in runs]
    return by_place(planned, done, [failed.cell for failed in failures])


def _draw(fared: "list[Fared]", title: str, folder: Path) -> list[str]:
    """A picture for each method."""
    from refprotofl.report.pictures.accuracy import draw_bars

    told = []
    for method in dict.fromkeys(one.place.method for one in fared):
        own = [one for one in fared if one.place.method == method]
        attacks, defences = (
            list(dict.fromkeys(getattr(one.place, name) for one in own)) for name in ("attack", "defence")
        )
        bars = {defence: [one.accuracy for one in own if one.place.defence == defence] for defence in defences}
        for suffix in ("png", "pdf"):
            path = folder / f"attack-{for_file_name(method)}.{suffix}"
            told.append(
                draw_bars(attacks, bars, path, "accuracy of honest clients, personal (%)", f"{method}, {title}")
            )
    return told
