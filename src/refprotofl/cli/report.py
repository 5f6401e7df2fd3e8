"""Commands that show what runs did: `report`, `watch`, `export-log`."""

import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from refprotofl.cli.app import DataDir, RunFolder, TrustCode, app, read_path
from refprotofl.cli.next_command import prediction, show_next
from refprotofl.cli.output import notes, out, say
from refprotofl.core import InputError, RefProtoFLError, counted, for_terminal
from refprotofl.report.trackers import Tracker

if TYPE_CHECKING:
    from refprotofl.report import Blocks
    from refprotofl.report.page.elements import Page

Places = Annotated[
    list[Path],
    typer.Argument(
        help="Run folders, or the folder of a grid of runs.",
        parser=read_path,
        metavar="RUN_OR_GRID...",
        show_default=False,
    ),
]
FigureFolder = Annotated[
    Path | None,
    typer.Option(parser=read_path, metavar="DIR", help="Also draw its figures to this folder, as .png, .pdf and .svg."),
]
FigureWidth = Annotated[
    str | None,
    typer.Option(
        help="With --figures: their width, of a paper's column or text (ieee, icml, acm, each also with -text, or "
        "neurips), or in inches. Titles are left to the caption.",
        show_default=False,
    ),
]
Links = Annotated[
    list[str] | None,
    typer.Option(
        help="Add accuracy over estimated time on a link: lte, lora, nb-iot, wifi or "
        "up=1Mbit/s,down=5Mbit/s,latency=50ms; wifi;3:lora gives client 3 its own. Repeatable.",
        show_default=False,
    ),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]


@app.command(epilog="Example: refprotofl report runs/a --out report.html --link lte --figures figures")
def report(
    places: Places,
    out_file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=read_path,
            metavar="FILE",
            help="The page (default: report.html in the folder).",
            show_default=False,
        ),
    ] = None,
    figures: FigureFolder = None,
    width: FigureWidth = None,
    link: Links = None,
    against: Annotated[
        str | None, typer.Option(metavar="NAME", help="The baseline of a comparison.", show_default="the first")
    ] = None,
    data: DataDir = None,
    trust_code: TrustCode = False,
    opened: Open = False,
) -> None:
    """Write a self-contained HTML report of runs: curves, clients, classes, bytes, time.

    Nothing is trained again. Runs of a custom method are in the tables only with --trust-code.
    """
    from refprotofl.core import read_links
    from refprotofl.report import gather
    from refprotofl.report.page.html import page_path
    from refprotofl.report.page.static_figures import read_width

    links = {f"link-{number}": read_links(text) for number, text in enumerate(link or (), 1)}
    path = page_path(places, out_file)
    inches = None if width is None else read_width(width)
    if inches is not None and figures is None:
        raise InputError("--width is of the figures: give their folder with --figures.")
    page = gather(places, links, data, against, trust_code=trust_code)
    write_report(page, path)
    if figures is not None:
        from refprotofl.report import draw_figures

        drawn = draw_figures(page.figures, figures, width=inches)
        say(f"{counted(len(drawn), 'figure')} in {for_terminal(figures)}")
    if (words := prediction(places[0])) is not None:
        show_next(words)
    if opened:
        webbrowser.open(path.absolute().as_uri())


def write_report(page: "Page", path: Path, console: Console = out) -> None:
    from refprotofl.report.page.html import write_page

    write_page(page, path)
    for note in page.notes:
        say(for_terminal(note), notes)
    say(f"Report: {for_terminal(path)}", console)


def report_finished(
    places: Sequence[Path],
    path: Path,
    data: Path | None = None,
    against: str | None = None,
    names: Mapping[Path, str] | None = None,
    title: str = "",
    blocks: "Blocks | None" = None,
    protocol: str | None = None,
) -> None:
    """Write the report of runs that another command has just finished; an error does not fail the command."""
    from refprotofl.report import gather

    try:
        page = gather(  # trusted: the user has just named the code
            places, None, data, against, names=names, title=title, trust_code=True, blocks=blocks, protocol=protocol
        )
        write_report(page, path, notes)
    except RefProtoFLError as problem:
        say(f"No report was written: {for_terminal(problem)}", notes)


@app.command(epilog="Example: refprotofl watch runs/a --port 8765")
def watch(
    place: Annotated[
        Path,
        typer.Argument(
            help="A run folder, or the folder of a grid.", parser=read_path, metavar="RUN_OR_FOLDER", show_default=False
        ),
    ],
    port: Port = 0,
    host: Annotated[
        str, typer.Option(help="The address to listen on; any other than the default lets other machines connect.")
    ] = "127.0.0.1",
    opened: Open = False,
) -> None:
    """Serve the live report page of a run, until Ctrl-C.

    The address contains a random token; viewers need all of it.
    """
    from refprotofl.report.live.follower import Follower
    from refprotofl.report.live.web_server import LiveServer, listen, new_token

    if not place.exists():
        raise InputError(f"Path not found: {place}")
    server = LiveServer(Follower(place), host, listen(host, port), new_token())
    say(f"Live report: {server.address}")
    if opened:
        webbrowser.open(server.address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        say("Stopped serving; the run is not affected.", notes)
    finally:
        server.closing.set()
        server.server_close()


@app.command("export-log", epilog="Example: refprotofl export-log runs/a --to tensorboard --out logs --follow")
def export_log(
    run_folder: RunFolder,
    to: Annotated[Tracker, typer.Option(help="tensorboard and mlflow are extras.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            parser=read_path,
            metavar="PATH",
            show_default=False,
            help="A folder, or a file for csv (default: tensorboard, mlflow or log.csv in the run folder).",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue until the run has ended.")] = False,
) -> None:
    """Export a run's metrics from events.jsonl to a tracker, after the run or during it."""
    from refprotofl.report.export_log import export_log as export

    path = out or run_folder / ("log.csv" if to is Tracker.csv else to.value)
    try:
        written = export(run_folder, to, path, follow)
    except KeyboardInterrupt:
        say(f"Stopped. The numbers written so far are in {for_terminal(path)}.", notes)
        return
    say(f"{counted(written, 'number')} in {for_terminal(path)}")
