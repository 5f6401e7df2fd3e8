"""The command `frontier`."""

import json
import math
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
from refprotofl.cli.grids import show_table, watched_search
from refprotofl.cli.output import emit, notes, say, warn
from refprotofl.cli.run import read_workers, with_device
from refprotofl.core.errors import InputError
from refprotofl.core.escaping import for_terminal
from refprotofl.core.units import read_whole

if TYPE_CHECKING:
    from refprotofl.federation.session import Workers as Count
    from refprotofl.report.page.collect import Blocks
    from refprotofl.studies.frontier.candidates import Request
    from refprotofl.studies.frontier.limits import Limit
    from refprotofl.studies.frontier.search import Found


@app.command(
    epilog="Example: refprotofl frontier --preset small --set dataset=fashion-mnist --budget '10 MB', or --link lora "
    "--deadline 3600 --methods thin,fedavg:share=full:compress.name=stc --schedules 20x1,6x3"
)
def frontier(
    file: File = None,
    preset: Preset = None,
    settings: Settings = None,
    budget: Annotated[
        str | None, typer.Option(help="Most bytes of all clients, both ways and once: '10 MB'.", show_default=False)
    ] = None,
    round_budget: Annotated[
        str | None, typer.Option(help="Most bytes of one client in any round, both ways: '50 kB'.", show_default=False)
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(help="With --deadline: lte, lora, nb-iot, wifi or up=…,down=…,latency=….", show_default=False),
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(min=0.001, help="Most seconds of a client on its link, in all.", show_default=False)
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods with commas between, with switches as in compare; fit: the bytes that fit.",
            show_default="a choice of ours",
        ),
    ] = None,
    schedules: Annotated[
        str | None,
        typer.Option(
            help="Rounds x local epochs, with commas between: 20x1,6x3.", show_default="the experiment's, and 3/10 x 3"
        ),
    ] = None,
    ends: Annotated[int, typer.Option(min=1, help="Candidates that are run to their end, at least.")] = 6,
    seeds: Annotated[str, typer.Option(help="Seeds with commas between; report results with others.")] = "1000",
    protocol: Annotated[str, typer.Option(help="The accuracy that decides.")] = "personal",
    out_dir: Annotated[
        Path,
        typer.Option("--out", parser=read_path, metavar="DIR", help="Where the runs lie; finished ones are reused."),
    ] = Path("runs/frontier"),
    data: DataDir = None,
    workers: Workers = "auto",
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole search as JSON.")] = False,
) -> None:
    """Search which method, at which setting, is best for your data and your link, and how to run it.

    Candidates are methods with their compressors, each with several schedules; all run a few rounds, the better ones
    more. The test set is not touched. A search that was interrupted goes on where it was.
    """
    with nothing_kept_yet():
        limit_kernels(file, settings)
        from refprotofl.studies.cells import split_list
        from refprotofl.studies.frontier import candidates
        from refprotofl.studies.frontier.search import check
        from refprotofl.studies.frontier.summary import effort

        request = candidates.Request(
            file=file,
            preset=preset,
            settings=tuple(with_device(settings or [], device)),
            methods=tuple(split_list(methods)) if methods is not None else None,
            schedules=candidates.read_schedules(schedules) if schedules is not None else (),
            limit=_read_limit(budget, round_budget, link, deadline),
            seeds=tuple(read_seeds(seeds)),
            protocol=protocol,
            ends=ends,
            out=out_dir,
        )
        count = read_workers(workers)
        check(request)
    say(effort(request), notes)
    _tell(request, _search(request, data, count), data, as_json)


def _read_limit(budget: str | None, round_budget: str | None, link: str | None, deadline: float | None) -> "Limit":
    """The one of three that was given."""
    from refprotofl.core.network import read_link
    from refprotofl.studies.frontier.limits import Deadline, EachRound, Total

    if sum((budget is not None, round_budget is not None, link is not None or deadline is not None)) != 1:
        raise InputError("Say what is allowed by one of --budget, --round-budget, or --link with --deadline.")
    if budget is not None:
        return Total(_read_bytes("--budget", budget))
    if round_budget is not None:
        return EachRound(_read_bytes("--round-budget", round_budget))
    if link is None or deadline is None:
        raise InputError("--link and --deadline go together: which link, and for how many seconds.")
    if not math.isfinite(deadline):
        raise InputError(f"--deadline {deadline}: allowed are seconds, such as 3600.")
    return Deadline(read_link(link), link, deadline)


def _read_bytes(option: str, text: str) -> int:
    from pydantic import TypeAdapter, ValidationError

    from refprotofl.experiment.keys import Bytes

    try:
        number = read_whole(text)
        return TypeAdapter(Bytes).validate_python(text if number is None else number)
    except ValidationError:
        raise InputError(f"{option} {text}: allowed are sizes such as '10 MB', '900 B' or '64 KiB'.") from None


def _search(request: "Request", data: Path | None, workers: "Count") -> "Found":
    from refprotofl.studies.frontier.search import search

    with watched_search(request.out) as watch:
        return search(request, data, workers, watch)


def _tell(request: "Request", found: "Found", data: Path | None, as_json: bool) -> None:
    from refprotofl.cli.report import report_beside
    from refprotofl.report.tables import write_table
    from refprotofl.studies.frontier.summary import blocks_of, command, plain, table_of, write_record

    table = table_of(request, found)
    write_table(request.out / "tables", table)
    record = write_record(request, found, data)
    for one in found.tried:
        if one.failed:
            warn(f"{for_terminal(one.candidate.title)}: {for_terminal(one.failed)}")
    if as_json:
        emit(json.dumps(plain(request, found, data), indent=2) + "\n")
    else:
        show_table(table, table.notes)
    blocks = blocks_of(found)
    folders = [folder for _, called in blocks for folder in called]
    if folders:
        report_beside(
            folders, request.out / "report.html", data, title=table.title, blocks=blocks, protocol=request.protocol
        )
    if len(folders) > 1:
        _draw(request, folders, blocks)
    say(f"The whole search is in {for_terminal(record)}", notes)
    winner = command(request, found, data)
    if winner is None:
        warn(
            f"None that was run to its end keeps within {request.limit.words}: allow more, or name others with "
            "--methods."
        )
    elif not as_json:
        say(f"Run the best: {for_terminal(winner)}")


def _draw(request: "Request", folders: list[Path], blocks: "Blocks") -> None:
    """The front as a picture."""
    from refprotofl.report.page.collect import gather
    from refprotofl.report.page.static_figures import draw_figures

    page = gather(folders, trust_code=True, blocks=blocks, protocol=request.protocol)
    draw_figures([one for one in page.figures if one.name == "frontier"], request.out / "figures")
