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
    read_seeds,
    read_workers,
)
from refprotofl.cli.output import notes, say
from refprotofl.cli.study import Format, Seeds, StudyFolder, TableFormat, planning, print_table, read_base, warn_failed
from refprotofl.core import counted, for_file_name, for_terminal

if TYPE_CHECKING:
    from refprotofl.studies.attack import CaseResult

Kind = Annotated[
    str,
    typer.Option(
        help="Comma-separated attacks: signflip, scaling, alie, ipm, squat, freerider, prototype-shift, labelflip, "
        "backdoor; colons add switches: scaling:attack.strength=100. A run without attack is added."
    ),
]
Fraction = Annotated[float, typer.Option(help="Share of the clients that are hostile.")]
Defence = Annotated[
    str,
    typer.Option(
        help="Comma-separated values of the key aggregate; colons add switches: trimmed:trim=0.1, mean:min-senders=3."
    ),
]


@app.command(
    epilog="Example: refprotofl attack --kind signflip,backdoor --fraction 0.2 --defence mean,median --preset quick"
)
def attack(
    kind: Kind,
    file: File = None,
    fraction: Fraction = 0.2,
    defence: Defence = "mean,median,trimmed,clipped,geometric-median",
    methods: Annotated[str, typer.Option(help="Comma-separated methods.")] = "refprotofl",
    preset: Preset = None,
    settings: Settings = None,
    seeds: Seeds = "0,1,2",
    out_dir: StudyFolder = Path("runs/attack"),
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    table_format: TableFormat = Format.table,
) -> None:
    """Simulate hostile clients under several aggregators, and print the accuracy of the honest clients.

    In runs without attack, the accuracy is that of the same clients.
    """
    with nothing_kept_yet():
        limit_kernels(file, settings)
        from refprotofl.report import write_table
        from refprotofl.studies import attack as study
        from refprotofl.studies import split_list

        request = study.Request(
            base=read_base(file, preset, settings, device),
            methods=tuple(split_list(methods)),
            attacks=tuple(split_list(kind)),
            fraction=fraction,
            defences=tuple(split_list(defence)),
            seeds=tuple(read_seeds(seeds)),
        )
        count, planned = read_workers(workers), request.trials(out_dir / "runs")
    with planning(out_dir, data, count) as planner:
        results = planner.conduct(study.attack(request, out_dir / "runs", data))
    warn_failed(planner)
    dataset, over = planned[0][1].experiment.dataset, counted(len(request.seeds), "seed")
    title = f"{dataset}: accuracy of honest clients, {100 * fraction:g} % hostile, mean over {over}"
    table = study.tabulated(results, fraction, title)
    written = write_table(out_dir / "tables", table)
    print_table(table, table_format)
    say(f"Tables are in {for_terminal(written[0].parent)}, as Markdown, LaTeX, CSV and JSON", notes)
    for sentence in _draw(results, title, out_dir / "figures"):
        say(for_terminal(sentence), notes)


def _draw(results: "list[CaseResult]", title: str, folder: Path) -> list[str]:
    """Draw a figure of each method."""
    from refprotofl.report import draw_bars

    written = []
    for method in dict.fromkeys(one.case.method for one in results):
        own = [one for one in results if one.case.method == method]
        attacks, defences = (
            list(dict.fromkeys(getattr(one.case, name) for one in own)) for name in ("attack", "defence")
        )
        bars = {defence: [one.accuracy for one in own if one.case.defence == defence] for defence in defences}
        for suffix in ("png", "pdf"):
            path = folder / f"attack-{for_file_name(method)}.{suffix}"
            label = "accuracy of honest clients, personal (%)"
            written.append(draw_bars(attacks, bars, path, label, f"{method}, {title}"))
    return written
